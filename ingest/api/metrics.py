"""The metrics of the API.

Gauges are added up over the server processes. A gauge that all of them share (how full the journal is) is
therefore set only while one process renders its metrics: see `common`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from ingest.api.ports import Metrics
from ingest.api.responses import AppendResult
from ingest.journal.receipts import Fill

Transport = Literal["http", "ws"]

ACK_S = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
BATCH_EVENTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 50_000)


class IngestMetrics:
    def __init__(self, metrics: Metrics) -> None:
        self._acks = metrics.histogram(
            "calve_ingest_ack_seconds",
            "Time from the last byte of a batch to the answer after its COMMIT.",
            ("transport",),
            ACK_S,
        )
        self._batches = metrics.histogram(
            "calve_ingest_batch_events", "Events in one request or message.", ("transport",), BATCH_EVENTS
        )
        self._commit_waits = metrics.histogram(
            "calve_ingest_commit_wait_seconds", "Time that requests with wait=commit waited.", ("committed",)
        )
        self._events = metrics.counter(
            "calve_ingest_events_total", "Events by what became of them.", ("format", "status")
        )
        self._rejects = metrics.counter(
            "calve_ingest_rejects_total", "Events that became dead letters, by reason.", ("code",)
        )
        self._refusals = metrics.counter(
            "calve_ingest_refusals_total",
            "Batches that were not taken, by reason: the client has to send them again.",
            ("transport", "reason"),
        )
        self._nacks = metrics.counter("calve_ingest_nacks_total", "Messages answered with nack.", ("reason",))
        self._connections = metrics.gauge("calve_ingest_connections", "Open WebSocket connections.").labels()
        self._pending_events = metrics.gauge(
            "calve_ingest_journal_pending_events", "Events that wait in the journal to land."
        ).labels()
        self._pending_bytes = metrics.gauge(
            "calve_ingest_journal_pending_bytes", "Stored bytes that wait in the journal to land."
        ).labels()
        self._refused = metrics.counter(
            "calve_ingest_connections_refused_total", "WebSocket connections refused.", ("reason",)
        )

    def acknowledged(self, transport: Transport, result: AppendResult, took_s: float) -> None:
        """A batch whose events are durable."""
        summary = result.summary
        self._acks.labels(transport).observe(took_s)
        self._batches.labels(transport).observe(summary.events)
        counts = (
            ("accepted", result.accepted),
            ("duplicate", len(result.receipt.duplicates)),
            ("dead_lettered", result.dead_lettered),
            ("ignored", len(summary.ignored)),
        )
        for status, count in counts:
            if count:
                self._events.labels(summary.format, status).add(count)
        for _, _, code in summary.rejects:
            self._rejects.labels(code).add()

    def waited(self, *, committed: bool, took_s: float) -> None:
        self._commit_waits.labels("true" if committed else "false").observe(took_s)

    def refused(self, transport: Transport, reason: str) -> None:
        self._refusals.labels(transport, reason).add()

    def nack(self, reason: str) -> None:
        self._nacks.labels(reason).add()

    def connections(self, count: int) -> None:
        self._connections.set(count)

    @contextmanager
    def common(self, fill: Fill) -> Iterator[None]:
        """Within the block, this process reports the gauges that all processes share."""
        self._pending_events.set(fill.pending_events)
        self._pending_bytes.set(fill.pending_bytes)
        try:
            yield
        finally:
            self._pending_events.set(0)
            self._pending_bytes.set(0)

    def connection_refused(self, reason: str) -> None:
        self._refused.labels(reason).add()
