"""The result of a request with changes: the response to it, and the metrics.

An event is `accepted`, `duplicate` (received before: a success), `dead_lettered` (stored with the reason, to
be fixed and replayed) or `ignored` (it changes no row). Unless `verbose` is set, only events that were not
accepted are listed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from prometheus_client import Counter, Gauge, Histogram
from pydantic import BaseModel, Field

from catalog.errors import Invalid
from ingest.change import ChangeColumns, ParsedRequest, TableName
from ingest.journal.receipts import AppendReceipt, BufferUsage
from ingest.store.tables import LandedTable

LISTED_MAX = 1000  # events that were not accepted; `truncated` is set if there are more
REASON_DUPLICATE = "received before"

# Errors have Iceberg's form; calve/openapi.py adds its schema.
_RETRY_AFTER = {"Retry-After": {"description": "Seconds", "schema": {"type": "integer", "minimum": 0}}}
ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"description": "A parameter is wrong, or nothing in the body can be used."},
    401: {"description": "No caller, a token that is wrong or expired, or a wrong signature."},
    403: {"description": "The caller does not have the role that this needs."},
    404: {"description": "There is no such warehouse."},
    503: {
        "description": "Not stored: send the request again after Retry-After seconds.",
        "headers": _RETRY_AFTER,
    },
}
CHANGE_ERRORS: dict[int | str, dict[str, Any]] = {
    **ERRORS,
    409: {"description": "Another body was stored under this Idempotency-Key. Nothing was stored."},
    413: {"description": "The body is larger than the server accepts."},
    415: {"description": "The content encoding is neither gzip nor zstd."},
    429: {
        "description": "The journal is full: send the request again after Retry-After seconds.",
        "headers": _RETRY_AFTER,
    },
}


class EventResult(BaseModel):
    index: int
    status: Literal["accepted", "duplicate", "dead_lettered", "ignored"]
    reason: str | None


class SnapshotAnswer(BaseModel):
    table: str
    number: int = Field(description="Of the commit in the warehouse's history")
    mirror_snapshot_id: int | None = Field(alias="mirror-snapshot-id")
    changes_snapshot_id: int | None = Field(alias="changes-snapshot-id")
    commit_timestamp: int = Field(alias="commit-timestamp", description="Milliseconds since 1970")


class ChangesReceived(BaseModel):
    """The changes are durable."""

    success: bool = Field(description="No event became a dead letter")
    eventsReceived: int  # noqa: N815 - the protocol's name
    eventsAccepted: int  # noqa: N815
    isDuplicate: bool = Field(description="No event was new")  # noqa: N815
    duplicates: int
    deadLettered: int = Field(description="Events that became dead letters and need to be fixed")  # noqa: N815
    token: str = Field(description="A position in the journal: see landed")
    format: str
    events: list[EventResult] = Field(description="Events that were not accepted; with verbose, all")
    truncated: bool = Field(default=False, description="There are more than are listed")


class ChangesCommitted(ChangesReceived):
    """The response to wait=commit."""

    committed: bool = Field(description="All changes are visible")
    snapshots: list[SnapshotAnswer]


class TopicOffsets(BaseModel):
    """The response of a Kafka REST proxy."""

    key_schema_id: int | None
    value_schema_id: int | None
    offsets: list[dict[str, int | str | None]] = Field(
        description="partition, offset, error_code and error of each record"
    )


@dataclass(frozen=True, slots=True)
class RequestSummary:
    """The parts of a request that are kept while it waits for COMMIT: not its rows."""

    format: str
    events: int
    changed: frozenset[int]  # the indexes of events that are changes
    rejects: tuple[tuple[int, str, str], ...]  # index, reason, code
    ignored: Mapping[int, str]
    tables: frozenset[TableName]
    source: str
    number: int  # the source's own, of the last change

    @staticmethod
    def of(parsed: ParsedRequest) -> RequestSummary:
        if parsed.columns is not None and parsed.columns.size == parsed.events:
            return _of_columns(parsed.format, parsed.columns)
        changes, rejects = parsed.changes, parsed.rejects
        tables = {change.table for change in changes}
        tables.update(reject.table for reject in rejects if reject.table is not None)
        return RequestSummary(
            parsed.format,
            parsed.events,
            frozenset([change.index for change in changes]),
            tuple((reject.index, reject.reason, reject.code) for reject in rejects),
            parsed.ignored,
            frozenset(tables),
            changes[0].source if changes else "",
            (changes[-1].number or 0) if changes else 0,
        )


def _of_columns(format_: str, columns: ChangeColumns) -> RequestSummary:
    indexes = range(columns.first_index, columns.first_index + columns.size)
    number = columns.different["number"][-1]
    source = columns.same["source"]
    return RequestSummary(
        format_, columns.size, frozenset(indexes), (), {}, frozenset({columns.table}), source, number
    )


@dataclass(frozen=True, slots=True)
class AppendResult:
    """A request whose events are durable."""

    warehouse: str
    summary: RequestSummary
    receipt: AppendReceipt

    @property
    def token_id(self) -> int:
        """Return the journal id up to which everything must be visible, so that the request with its repeated
        events is.
        """
        return self.receipt.last if self.receipt.last is not None else self.receipt.head

    @property
    def token(self) -> str:
        return f"{self.warehouse}:{self.token_id}"

    @property
    def accepted(self) -> int:
        return len(self.summary.changed - self.receipt.duplicates)

    @property
    def dead_lettered(self) -> int:
        return len({index for index, _, _ in self.summary.rejects} - self.receipt.duplicates)

    @property
    def is_duplicate(self) -> bool:
        """Return whether no event was new."""
        return bool(self.receipt.duplicates) and not self.accepted and not self.dead_lettered


def receipt_response(result: AppendResult, *, verbose: bool = False) -> dict[str, Any]:
    """Return the body of a response after COMMIT."""
    summary = result.summary
    listed = list(_events(result, verbose=verbose))
    answer: dict[str, Any] = {
        "success": not result.dead_lettered,
        "eventsReceived": summary.events,
        "eventsAccepted": result.accepted,
        "isDuplicate": result.is_duplicate,
        "duplicates": len(result.receipt.duplicates),
        "deadLettered": result.dead_lettered,
        "token": result.token,
        "format": summary.format,
        "events": listed if verbose else listed[:LISTED_MAX],
    }
    if not verbose and len(listed) > LISTED_MAX:
        answer["truncated"] = True
    return answer


def commit_response(
    result: AppendResult, landed: Mapping[TableName, LandedTable] | None, *, verbose: bool = False
) -> dict[str, Any]:
    """Return the body of a response to wait=commit; `landed` is None if the commit did not happen in time."""
    answer = receipt_response(result, verbose=verbose)
    answer["committed"] = landed is not None
    answer["snapshots"] = snapshots_response(landed or {})
    return answer


def snapshots_response(landed: Mapping[TableName, LandedTable]) -> list[dict[str, Any]]:
    return [
        {
            "table": dotted(table),
            "number": row.number,
            "mirror-snapshot-id": row.mirror_snapshot_id,
            "changes-snapshot-id": row.changes_snapshot_id,
            "commit-timestamp": row.commit_us // 1000,
        }
        for table, row in sorted(landed.items(), key=lambda item: item[0])
        if row.number is not None
    ]


def kafka_response(result: AppendResult) -> dict[str, Any]:
    """Return the body that a Kafka REST proxy sends: an offset for each record, in order.

    A dead letter is stored, so its record has an offset and no error.
    """
    accepted = {"partition": 0, "offset": result.token_id, "error_code": None, "error": None}
    return {"key_schema_id": None, "value_schema_id": None, "offsets": [accepted] * result.summary.events}


def dotted(table: TableName) -> str:
    return ".".join(table)


def parse_token(text: str) -> tuple[str, int]:
    """Parse a token of a response: warehouse and journal id."""
    warehouse, _, number = text.rpartition(":")
    if not warehouse or not (number.isascii() and number.isdigit()) or len(number) > 18:
        raise Invalid("token must be the token of a response of /cdc, such as main:1234")
    return warehouse, int(number)


def _events(result: AppendResult, *, verbose: bool) -> Iterable[dict[str, Any]]:
    summary = result.summary
    found: dict[int, tuple[str, str | None]] = {}
    if verbose:
        found.update((index, ("accepted", None)) for index in range(summary.events))
    found.update((index, ("ignored", why)) for index, why in summary.ignored.items())
    found.update((index, ("dead_lettered", reason)) for index, reason, _ in summary.rejects)
    found.update((index, ("duplicate", REASON_DUPLICATE)) for index in result.receipt.duplicates)
    for index in sorted(found):
        status, reason = found[index]
        yield {"index": index, "status": status, "reason": reason}


def is_unusable(parsed: ParsedRequest) -> bool:
    """Return whether every event is a reject. An ignored event, such as a heartbeat, is usable."""
    return len({reject.index for reject in parsed.rejects}) == parsed.events


# -- metrics

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
_event_count = Counter("calve_ingest_events_total", "Events by result.", ("format", "status"))
_rejects = Counter("calve_ingest_rejects_total", "Events that became dead letters, by reason.", ("code",))
_refusals = Counter(
    "calve_ingest_refusals_total",
    "Batches that were refused, by reason: the client has to send them again.",
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
        """Count a batch whose events are durable."""
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
                _event_count.labels(summary.format, status).inc(count)
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
        """Set the gauges that all processes share, just before the response to /metrics."""
        _pending_events.set(usage.pending_events)
        _pending_bytes.set(usage.pending_bytes)

    def connection_refused(self, reason: str) -> None:
        _connections_refused.labels(reason).inc()


# -- the state of each source in this process


@dataclass(slots=True)
class SourceState:
    batches: int = 0
    events: int = 0
    last_received_sequence: int = 0
    last_acked_sequence: int = 0
    last_received_ms: int = 0
    last_acked_ms: int = 0


class Sources:
    """By warehouse and name. Used on the event loop only."""

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
