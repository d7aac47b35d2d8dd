"""The metrics of verification."""

from __future__ import annotations

from typing import Any

from prometheus_client import Counter, Histogram

SECONDS = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)

_checks = Counter("calve_verifications_total", "Mirrors that were verified, by what was found.", ("result",))
_differences = Counter("calve_verification_differences_total", "Rows of mirrors that were found to differ.")
_seconds = Histogram("calve_verification_seconds", "Time of a verification in a worker.", buckets=SECONDS)


def checked(state: str, facts: dict[str, Any]) -> None:
    _checks.labels(state).inc()
    took_ms = facts.get("ms")
    if isinstance(took_ms, int | float):
        _seconds.observe(took_ms / 1000)
    counts = facts.get("differences")
    if isinstance(counts, dict):
        _differences.inc(sum(count for count in counts.values() if isinstance(count, int) and count > 0))
