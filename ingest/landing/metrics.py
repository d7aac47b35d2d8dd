"""The metrics of landing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from prometheus_client import Counter, Histogram

from ingest.store.tables import TableAdvance

SECONDS = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 20.0, 40.0, 60.0, 120.0, 300.0)
EVENTS = (1, 10, 100, 1_000, 5_000, 10_000, 50_000, 100_000, 500_000)

_visible = Histogram(
    "calve_landing_visible_seconds",
    "Time from the acknowledgement of a batch's oldest change to its visibility.",
    buckets=SECONDS,
)
_events = Histogram("calve_landing_batch_events", "Changes in one published batch.", buckets=EVENTS)
_write = Histogram(
    "calve_landing_write_seconds", "Time that Spark took to write and merge a batch.", buckets=SECONDS
)
_bytes = Counter("calve_landing_bytes_total", "Bytes of the files that batches wrote.")
_failures = Counter(
    "calve_landing_failures_total", "Batches that could not be staged, written or published.", ("at",)
)


class LandingMetrics:
    def published(self, steps: Sequence[TableAdvance], metrics: dict[str, Any]) -> None:
        now_ms = time.time_ns() // 1_000_000
        oldest_ms = min((step.oldest_ms for step in steps if step.oldest_ms), default=now_ms)
        _visible.observe(max(0.0, (now_ms - oldest_ms) / 1000))
        _events.observe(sum(step.events for step in steps))
        for facts in (metrics.get("tables") or {}).values():
            _bytes.inc(facts.get("bytes", 0) if isinstance(facts, dict) else 0)
        took_ms = metrics.get("write-ms")
        if isinstance(took_ms, int | float):
            _write.observe(took_ms / 1000)

    def failed(self, at: str) -> None:
        _failures.labels(at).inc()
