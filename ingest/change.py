"""The change of one row: the form that all formats are converted to.

Plain data. A format module converts a producer's events to changes, the journal stores them, and staging
orders, types and writes them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

import orjson

from catalog.errors import Invalid
from catalog.names import check_name

# read: a row of a first load; rename: of a column (see formats/ddl.py)
Operation = Literal["insert", "update", "delete", "truncate", "read", "rename"]

Row = dict[str, Any]  # column -> value as the producer's JSON has it
TableName = tuple[str, ...]  # namespace levels, then the name


@dataclass(frozen=True, slots=True)
class Declared:
    """The column types that a producer sends with its changes.

    `columns` maps a column to its type: an Iceberg type string (`long`, `decimal(10,2)`, `timestamptz`, ...),
    or an Iceberg struct, list or map as in a schema's JSON, without ids. `encodings` says how a value is
    written in JSON if the type alone does not: `days`, `ms`, `us`, `ns` (since the epoch, or of the day for a
    time), `base64`, `hex`, `decimal-base64` (unscaled, big endian, two's complement), `decimal-struct`
    ({"scale", "value"}), `bits-base64` (little endian), `json`. `defaults` are constants, of columns
    with plain types.
    """

    columns: Mapping[str, Any]
    encodings: Mapping[str, str] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    defaults: Mapping[str, Any] = field(default_factory=dict)


class Gtid(NamedTuple):
    """A global transaction id of MySQL or MariaDB. Numbers of a series rise."""

    series: str  # MySQL: the UUID of a server. MariaDB: a domain and a server
    number: int
    domain: str | None = None  # MariaDB: its servers number their transactions together


@dataclass(slots=True)
class Change:
    """One change of one row, or a truncate of all rows.

    A column that is missing in `after` keeps its old value (TOAST, partial rows), unless the row is whole
    (see `unchanged`); null is null. Of `before`, only the key is certain. `position` sorts as text within a
    source, oldest first; "" means the order of arrival. Two events with the same `identity` are the same
    event; "" means that the event has no identity. A source that numbers its events without gaps sets
    `number` instead.
    """

    index: int  # the index of the event in the request
    table: TableName
    operation: Operation
    before: Row | None = None
    after: Row | None = None
    key: tuple[str, ...] | None = (
        None  # key columns, if the producer names them; (): plain rows, which have none
    )
    row_id: str | None = None  # the producer's id of the row, if it sends no key columns
    source: str = ""
    position: str = ""
    identity: str = ""
    number: int | None = None
    transaction: str | None = None  # changes of one source with the same transaction are published together
    transaction_ends: bool = False  # certainly the last of its transaction
    time_ms: int | None = None  # when it happened at the source
    declared: Declared | None = None
    origin: str = ""  # the server whose log the position belongs to, if the producer names it
    # Of a whole row: the columns that kept their values and are not in `after`; any other missing column is
    # null. None: the row may be partial, and each missing column kept its value.
    unchanged: tuple[str, ...] | None = None
    moved_from: Row | None = None  # an insert that is half of a key change: the key of the row before
    # Behind the fields that the journal stores, in whose order it builds changes:
    gtid: Gtid | None = None  # of its transaction. It is not stored with the change


@dataclass(slots=True)
class Reject:
    """An event that cannot become a change, with the reason and the original bytes."""

    index: int
    reason: str  # one sentence: what is wrong and what to do
    original: bytes
    code: str = "unreadable"  # a short, stable code for metrics
    table: TableName | None = None
    source: str = ""
    position: str = ""
    identity: str = ""  # as of a change, if it could be read: a repeated reject is a duplicate too
    number: int | None = None
    context: Row | None = None  # how the request was parsed, for a replay


@dataclass(frozen=True, slots=True)
class TransactionEnd:
    """The source reports that a transaction is complete, and how many changes it has."""

    index: int
    source: str  # "": the record does not name its source
    transaction: str
    size: int | None = None


@dataclass(frozen=True, slots=True)
class TransactionBegin:
    """The source reports that a transaction begins; it will also report its end."""

    index: int
    source: str  # "": the record does not name its source
    transaction: str


@dataclass(frozen=True, slots=True)
class ChangeColumns:
    """Changes of one table as columns: one list for each field.

    `different` has the fields whose values differ; `same` has the fields with one common value. Any other
    field has its default. The changes belong to the events of a request from `first_index` on, one each.
    """

    table: TableName
    size: int
    first_index: int
    different: Mapping[str, list[Any]]
    same: Mapping[str, Any]

    def listed(self) -> list[Change]:
        """Return the changes as a list."""
        names = list(self.different)
        rows = zip(*self.different.values(), strict=True)
        return [
            Change(index, self.table, **self.same, **dict(zip(names, values, strict=True)))
            for index, values in enumerate(rows, self.first_index)
        ]


@dataclass(frozen=True, slots=True)
class BatchName:
    """The name of a request, such as its Idempotency-Key, and a digest of its body."""

    name: str
    digest: str


class ParsedRequest:
    """The content of one request. Each event of the request is a change, a reject, an end, or ignored.

    Changes that were parsed as columns stay columns until `changes` is read. The reader of `changes` may
    modify them, so from then on they are a list.
    """

    __slots__ = (
        "_changes",
        "batch",
        "begins",
        "columns",
        "ends",
        "epoch",
        "events",
        "excluded",
        "format",
        "ignored",
        "load_ends",
        "rejects",
    )

    def __init__(
        self,
        format: str,  # noqa: A002 - the word for it
        events: int = 0,
        changes: list[Change] | None = None,
        rejects: list[Reject] | None = None,
        ends: list[TransactionEnd] | None = None,
        begins: list[TransactionBegin] | None = None,
    ) -> None:
        self.format = format
        self.events = events  # the number of events in the request
        self._changes = changes if changes is not None else []
        self.columns: ChangeColumns | None = None
        self.rejects = rejects if rejects is not None else []
        self.ends = ends if ends is not None else []
        self.begins = begins if begins is not None else []  # of events that also have another entry
        self.ignored: dict[int, str] = {}  # index -> why (heartbeat, DDL, ...)
        self.batch: BatchName | None = None  # where events are identified by it
        self.excluded: list[Change] = []  # excluded by the rules of the source; received, not stored
        self.epoch: str | None = None  # the name of the source's epoch
        self.load_ends: set[int] = set()  # indexes of events that are the last rows of a table's load

    @property
    def changes(self) -> list[Change]:
        if self.columns is not None:
            self._changes, self.columns = [*self._changes, *self.columns.listed()], None
        return self._changes

    @changes.setter
    def changes(self, changes: list[Change]) -> None:
        self._changes, self.columns = changes, None

    @property
    def change_count(self) -> int:
        return len(self._changes) + (self.columns.size if self.columns is not None else 0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ParsedRequest) and self._all() == other._all()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ParsedRequest{self._all()}"

    def _all(self) -> tuple[object, ...]:
        changes = self._changes if self.columns is None else [*self._changes, *self.columns.listed()]
        return self.format, self.events, changes, self.rejects, self.ends, self.begins, self.ignored


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The parts of a request besides its body."""

    format: str = "auto"
    content_type: str = ""
    table: TableName | None = None  # from the path; overrides the table in the event
    source: str | None = None  # X-Source-Id, or a connection's source
    key: tuple[str, ...] | None = None  # ?key=id,region
    batch: str | None = None  # Idempotency-Key, webhook-id, or X-Source-Id with X-Batch-Seq
    namespace: tuple[str, ...] = ("default",)  # the namespace of a table that is named without one
    topic: str | None = None  # of the Kafka REST alias /topics/{topic}
    epoch: str | None = None  # X-Source-Epoch: the name of the source's epoch


def position_of(*parts: int | str) -> str:
    """Return a position that sorts as text: numbers as 16 hex digits, the most significant first.

    NUL is replaced, because PostgreSQL cannot store it.
    """
    texts = (f"{part:016x}" if isinstance(part, int) else part for part in parts)
    return "/".join(texts).replace("\0", "\N{SYMBOL FOR NULL}")


def original_of(event: object) -> bytes:
    """Return the event as JSON text, even if orjson cannot write a part of it."""
    try:
        return orjson.dumps(event, default=write_decimal)
    except TypeError:
        return json.dumps(event, default=str, separators=(",", ":")).encode()


def write_decimal(value: object) -> orjson.Fragment:
    """For orjson: write a Decimal as a number."""
    if isinstance(value, Decimal):
        return orjson.Fragment(str(value).encode())
    raise TypeError(type(value).__name__)


SEPARATOR = "\x1f"
TABLE_KEY_BYTES_MAX = 2_000  # PostgreSQL refuses longer rows in an index


@lru_cache(maxsize=4096)
def table_key(table: TableName | None) -> str:
    """Return the key of a table name. Invalid if a level is not allowed in a key."""
    if table is None:
        return ""
    for level in table:
        if not level or SEPARATOR in level or "\0" in level:
            raise Invalid(f"Invalid table name: {table!r}")
    key = SEPARATOR.join(table)
    try:
        length = len(key.encode())
    except UnicodeEncodeError as error:
        raise Invalid(f"Invalid table name: {table!r}") from error
    if length > TABLE_KEY_BYTES_MAX:
        raise Invalid(f"Invalid table name: longer than {TABLE_KEY_BYTES_MAX} bytes")
    return key


@lru_cache(maxsize=4096)
def table_name(key: str) -> TableName:
    return tuple(key.split(SEPARATOR)) if key else ()


# -- names of tables and other fields in events

NO_TABLE = "the event does not say to which table it belongs: post it to /cdc/{namespace}/{table}"
RESERVED_SUFFIXES = ("__changes", "__rejects")
_NUMBER_MAX = 2**63 - 1
_NAME_IT = "name it by text, or post to /cdc/{namespace}/{table}"


class Refused(Exception):
    """Raised inside a format module for one event. `read` turns it into a `Reject`."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


def fingerprint(*parts: object) -> str:
    """Return a digest of the content: 128 bits as 32 hex digits."""
    return blake2b(original_of(parts), digest_size=16).hexdigest()


def reserved(name: str) -> str | None:
    """Return why changes cannot go to a table of this name; None if they can."""
    suffix = next((suffix for suffix in RESERVED_SUFFIXES if name.endswith(suffix)), None)
    if suffix is None:
        return None
    return f"names that end in {suffix} belong to the tables that Calve adds: post to another path"


@lru_cache(maxsize=4096)
def checked_table(levels: TableName) -> TableName:
    """Return `levels` if all of them are valid names. Refused if not."""
    reason = reserved(levels[-1])
    if reason is not None:
        raise Refused("reserved-table", f"the table {levels[-1]} is reserved: {reason}")
    try:
        for level in levels[:-1]:
            check_name(level, "namespace")
        check_name(levels[-1], "table")
    except Invalid as invalid:
        raise Refused("bad-table", f"{invalid.message}: rename it, or post to another path") from None
    return levels


def table_of(namespace: object, name: object, context: RequestContext) -> TableName:
    """Return the table of an event that has `namespace` (None or "" if it has none) and `name` in two
    fields.
    """
    if context.table is not None:
        return context.table
    if name is None or name == "":
        raise Refused("no-table", NO_TABLE)
    if not isinstance(name, str):
        raise Refused("bad-table", f"the table's name is not text: {_NAME_IT}")
    if namespace is None or namespace == "":
        return checked_table((*context.namespace, name))
    if not isinstance(namespace, str):
        raise Refused("bad-table", f"the name of the table's schema or database is not text: {_NAME_IT}")
    return checked_table((namespace, name))


def table_of_dotted(text: object, context: RequestContext) -> TableName:
    """Return the table of an event that names it by one text, with dots between the levels."""
    if context.table is not None:
        return context.table
    if text is None or text == "":
        raise Refused("no-table", NO_TABLE)
    if not isinstance(text, str):
        raise Refused("bad-table", f"the table's name is not text: {_NAME_IT}")
    levels = tuple(text.split("."))
    return checked_table(levels if len(levels) > 1 else (*context.namespace, text))


def whole_number(value: object) -> int | None:
    """Return the number in an int or in a text of digits; None if it is neither, or does not fit 63 bits."""
    if isinstance(value, str) and len(value) <= 19 and value.isascii() and value.isdigit():
        value = int(value)
    if value.__class__ is int and 0 <= value <= _NUMBER_MAX:
        return value
    return None
