"""A row change, whatever its producer: the one shape that everything behind the formats works on.

Plain data. A format module turns a producer's events into these; the journal keeps them; batches order, type
and stage them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Operation = Literal["insert", "update", "delete", "truncate", "read"]  # read: a row of a first load

Row = dict[str, Any]  # column -> value as the producer's JSON has it
TableName = tuple[str, ...]  # namespace levels, then the name


@dataclass(frozen=True, slots=True)
class Declared:
    """The column types that a producer sent along.

    `columns` maps a column to its type: an Iceberg type string (`long`, `decimal(10,2)`, `timestamptz`, ...),
    or an Iceberg struct, list or map as in a schema's JSON, without ids. `encodings` says how a value stands
    in JSON where the type alone does not: `days`, `ms`, `us`, `ns` (since the epoch, or of the day for a
    time), `base64`, `hex`, `decimal-base64` (unscaled, big endian, two's complement), `decimal-struct`
    ({"scale", "value"}), `bits-base64` (little endian), `json`.
    """

    columns: Mapping[str, Any]
    encodings: Mapping[str, str] = field(default_factory=dict)
    required: frozenset[str] = frozenset()


@dataclass(slots=True)
class Change:
    """One change of one row (or a truncate of all).

    A column that is missing in `after` keeps its old value (TOAST, partial rows); null is null. Of `before`
    nothing is certain but the key. `position` sorts as text within a source, oldest first; "" means: in order
    of arrival. `identity` is what makes two events the same event; "" means that no two ever are. `number` is
    set instead where the source counts its events without gaps.
    """

    index: int  # which event of the request
    table: TableName
    operation: Operation
    before: Row | None = None
    after: Row | None = None
    key: tuple[str, ...] | None = (
        None  # key columns, where the producer says so; (): plain rows, which have none
    )
    row_id: str | None = None  # the producer's own name for the row, where that is all it says
    source: str = ""
    position: str = ""
    identity: str = ""
    number: int | None = None
    transaction: str | None = None  # changes of one source with the same one are published together
    transaction_ends: bool = False  # surely the last of its transaction
    time_ms: int | None = None  # when it happened at the source
    declared: Declared | None = None


@dataclass(slots=True)
class Reject:
    """An event that cannot become a change, with the reason and what came in. Nothing is lost."""

    index: int
    reason: str  # one sentence: what is wrong and what to do
    original: bytes
    code: str = "unreadable"  # a short, stable word for counting
    table: TableName | None = None
    source: str = ""
    position: str = ""
    identity: str = ""  # as of a change, where it could be read: a repeated reject is a duplicate too
    number: int | None = None


@dataclass(frozen=True, slots=True)
class TransactionEnd:
    """The source says that a transaction is complete, and of how many changes it consists."""

    index: int
    source: str  # "": the record does not say whose it is
    transaction: str
    size: int | None = None


@dataclass(frozen=True, slots=True)
class TransactionBegin:
    """The source says that a transaction begins; so it will say, too, when it is complete."""

    index: int
    source: str  # "": the record does not say whose it is
    transaction: str


@dataclass(slots=True)
class Parsed:
    """What one request holds. Each event of the request is the index of something in here."""

    format: str
    events: int = 0  # how many events the request had
    changes: list[Change] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    ends: list[TransactionEnd] = field(default_factory=list)
    begins: list[TransactionBegin] = field(default_factory=list)  # of events that are something else too
    ignored: dict[int, str] = field(default_factory=dict)  # index -> why (heartbeat, DDL, ...)


@dataclass(frozen=True, slots=True)
class Context:
    """What a request says besides its body."""

    format: str = "auto"
    content_type: str = ""
    table: TableName | None = None  # from the path; wins over what the event says
    source: str | None = None  # X-Source-Id, or a connection's source
    key: tuple[str, ...] | None = None  # ?key=id,region
    batch: str | None = None  # Idempotency-Key, webhook-id, or X-Source-Id with X-Batch-Seq
    namespace: tuple[str, ...] = ("default",)  # where a table without a namespace belongs
    topic: str | None = None  # of the Kafka REST alias /topics/{topic}


def position_of(*parts: int | str) -> str:
    """A position that sorts as text: numbers as 16 hex digits, joined in order of weight."""
    return "/".join(f"{part:016x}" if isinstance(part, int) else part for part in parts)
