"""The values that the journal returns: receipts, pending tables, entries, buffer usage; and its errors."""

from __future__ import annotations

from dataclasses import dataclass

from catalog.errors import Conflict, Unavailable
from ingest.change import Change, Reject, TableName


@dataclass(frozen=True, slots=True)
class AppendReceipt:
    """A request is durable. `first` and `last` are its journal ids, None if all of it was received before.

    `head` is the newest id of the warehouse at that time: every earlier event that the request repeats has
    this id or a lower one.
    """

    first: int | None
    last: int | None
    duplicates: frozenset[int]  # indexes of events of which nothing was new
    tables: tuple[TableName, ...]  # tables that got something new; () for rejects without a table
    head: int


@dataclass(frozen=True, slots=True)
class BufferUsage:
    """How much waits to land, over all warehouses. `level` is pending bytes as a fraction of `bytes_max`."""

    pending_events: int
    pending_bytes: int
    bytes_max: int
    level: float


@dataclass(frozen=True, slots=True)
class Pending:
    """The pending entries of one table."""

    table: TableName
    events: int
    stored_bytes: int
    oldest_ms: int
    first_id: int
    last_id: int


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """The changes and rejects of one request for one table, in order."""

    id: int
    received_ms: int
    changes: list[Change]
    rejects: list[Reject]


# -- errors


class JournalFull(Unavailable):
    """Nothing of the request was stored; the same request may be sent again after `retry_after_s`.

    `level` is how full the journal is: pending bytes as a fraction of `bytes_max`.
    """

    status = 429
    type = "TooManyRequestsException"

    def __init__(self, level: float, *, retry_after_s: int = 1) -> None:
        super().__init__(
            f"the journal is full ({level:.0%} of its size waits to land): send the request again later",
            retry_after_s=retry_after_s,
        )
        self.level = level


class BatchChanged(Conflict):
    """Another body was stored under the same name. Nothing of the request was stored."""

    def __init__(self) -> None:
        super().__init__(
            "another body was stored under this Idempotency-Key, Webhook-Id or X-Batch-Seq: send each body "
            "under a key of its own"
        )


class SourceHeld(Conflict):
    """The changes cannot be put in order. Nothing of the request was stored."""

    def __init__(self, warehouse: str, source: str, reason: str) -> None:
        super().__init__(
            f"the source {source} is held: {reason}. If it has a new history (a failover, a restored or "
            f"recreated database), send X-Source-Epoch with a new name, or POST "
            f"/lake/v1/{warehouse}/sources/{{source}}/epoch; if its history is the same, POST there with "
            '{"same-history": true}'
        )
        self.source = source
        self.reason = reason
