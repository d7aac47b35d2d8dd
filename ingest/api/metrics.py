"""The metrics of the API, and what this process knows of each source, for /status."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import asdict, dataclass
from typing import Any, Literal

from prometheus_client import Counter, Gauge, Histogram

from ingest.api.responses import AppendResult
from ingest.journal.receipts import BufferUsage

Transport = Literal["http", "ws"]

ACK_S = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
WAIT_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
BATCH_EVENTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 50_000)

_acks = Histogram(
    "calve_ingest_ack_seconds",
    "Time from the last byte of a batch to the answer after its COMMIT.",
    ("transport",),
    buckets=ACK_S,
)
_batches = Histogram(
    "calve_ingest_batch_events", "Events in one request or message.", ("transport",), buckets=BATCH_EVENTS
)
_commit_waits = Histogram(
    "calve_ingest_commit_wait_seconds",
    "Time that requests with wait=commit waited.",
    ("committed",),
    buckets=WAIT_S,
)
_events = Counter("calve_ingest_events_total", "Events by what became of them.", ("format", "status"))
_rejects = Counter("calve_ingest_rejects_total", "Events that became dead letters, by reason.", ("code",))
_refusals = Counter(
    "calve_ingest_refusals_total",
    "Batches that were not taken, by reason: the client has to send them again.",
    ("transport", "reason"),
)
_nacks = Counter("calve_ingest_nacks_total", "Messages answered with nack.", ("reason",))
_connections = Gauge("calve_ingest_connections", "Open WebSocket connections.", multiprocess_mode="livesum")
_pending_events = Gauge(
    "calve_ingest_journal_pending_events",
    "Events that wait in the journal to land.",
    multiprocess_mode="mostrecent",
)
_pending_bytes = Gauge(
    "calve_ingest_journal_pending_bytes",
    "Stored bytes that wait in the journal to land.",
    multiprocess_mode="mostrecent",
)
_connections_refused = Counter(
    "calve_ingest_connections_refused_total", "WebSocket connections refused.", ("reason",)
)


class IngestMetrics:
    def acknowledged(self, transport: Transport, result: AppendResult, took_s: float) -> None:
        """A batch whose events are durable."""
        summary = result.summary
        _acks.labels(transport).observe(took_s)
        _batches.labels(transport).observe(summary.events)
        counts = (
            ("accepted", result.accepted),
            ("duplicate", len(result.receipt.duplicates)),
            ("dead_lettered", result.dead_lettered),
            ("ignored", len(summary.ignored)),
        )
        for status, count in counts:
            if count:
                _events.labels(summary.format, status).inc(count)
        for _, _, code in summary.rejects:
            _rejects.labels(code).inc()

    def waited(self, *, committed: bool, took_s: float) -> None:
        _commit_waits.labels("true" if committed else "false").observe(took_s)

    def refused(self, transport: Transport, reason: str) -> None:
        _refusals.labels(transport, reason).inc()

    def nack(self, reason: str) -> None:
        _nacks.labels(reason).inc()

    def connections(self, count: int) -> None:
        _connections.set(count)

    def buffer_usage(self, usage: BufferUsage) -> None:
        """Set the gauges that all processes share: the process that answers /metrics does, just before."""
        _pending_events.set(usage.pending_events)
        _pending_bytes.set(usage.pending_bytes)

    def connection_refused(self, reason: str) -> None:
        _connections_refused.labels(reason).inc()


# -- what this process knows of each source


@dataclass(slots=True)
class SourceState:
    batches: int = 0
    events: int = 0
    last_received_sequence: int = 0
    last_acked_sequence: int = 0
    last_received_ms: int = 0
    last_acked_ms: int = 0


class Sources:
    """By warehouse and name. Used from the event loop only."""

    def __init__(self, remembered_max: int) -> None:
        self._remembered_max = remembered_max
        self._states: OrderedDict[tuple[str, str], SourceState] = OrderedDict()

    def received(self, warehouse: str, source: str, sequence: int, events: int, now_ms: int) -> SourceState:
        key = (warehouse, source)
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = SourceState()
            if len(self._states) > self._remembered_max:
                self._states.popitem(last=False)
        else:
            self._states.move_to_end(key)
        state.batches += 1
        state.events += events
        state.last_received_sequence = max(state.last_received_sequence, sequence)
        state.last_received_ms = now_ms
        return state

    def of(self, warehouse: str) -> list[dict[str, Any]]:
        return [
            {"id": source, **{_camel(name): value for name, value in asdict(state).items()}}
            for (where, source), state in self._states.items()
            if where == warehouse and source
        ]


def note_acknowledged(state: SourceState, sequence: int, now_ms: int) -> None:
    state.last_acked_sequence = max(state.last_acked_sequence, sequence)
    state.last_acked_ms = now_ms


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.title() for part in rest)
