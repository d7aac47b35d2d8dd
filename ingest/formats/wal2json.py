"""wal2json, both versions. 1: one object `{change: [...], xid, nextlsn, timestamp}` for each transaction. 2:
one object for each row, `{action: I|U|D|T|B|C|M, columns, identity, pk, xid, lsn, timestamp}`.

The position of a transaction is the end of its commit record (`nextlsn`, of B in version 2), then the number
of the row in it. The `lsn` of a row alone is not a position: PostgreSQL delivers in the order of commits.
Unchanged TOAST columns are left out, so they keep their value. `bytea` is hexadecimal without a prefix.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ingest.change import (
    Change,
    Declared,
    Operation,
    ParsedRequest,
    Refused,
    RequestContext,
    Row,
    TransactionBegin,
    TransactionEnd,
    fingerprint,
    position_of,
    table_of,
)
from ingest.formats import fields as given
from ingest.formats.sql_types import from_postgres
from ingest.identity import numbered_identity

_ROW_OPERATIONS: dict[str, Operation] = {
    "insert": "insert",
    "update": "update",
    "delete": "delete",
    "truncate": "truncate",
    "I": "insert",
    "U": "update",
    "D": "delete",
    "T": "truncate",
}
_AS_IT_IS = "send wal2json's output as it is"


@dataclass(frozen=True, slots=True)
class Image:
    """A row before or after a change: the columns that it has."""

    values: Row
    types: dict[str, Any]


@dataclass(frozen=True, slots=True)
class RowChange:
    operation: Operation
    schema: object
    table: object
    new: Image | None
    old: Image | None  # the replica identity: the key, or all columns
    primary_key: tuple[str, ...] | None

    @property
    def name(self) -> tuple[str, str]:
        return str(self.schema), str(self.table)


def row_change(body: object) -> RowChange | Refused:
    """Parse an element of version 1's `change`, or an object of version 2."""
    if not isinstance(body, dict):
        return Refused("not-object", f"a change is not a JSON object: {_AS_IT_IS}")
    first = "kind" in body
    word = body.get("kind") if first else body.get("action")
    operation = _ROW_OPERATIONS.get(word) if isinstance(word, str) else None
    if operation is None:
        return Refused(
            "unknown-operation", f"{given.short(word)} is not an operation of wal2json: {_AS_IT_IS}"
        )
    new = _columns(body, "column") if first else _listed(body.get("columns"))
    keys = given.row_of(body.get("oldkeys")) or {}
    old = _columns(keys, "key") if first else _listed(body.get("identity"))
    if operation in ("insert", "update") and new is None:
        return Refused("no-row", f"the columns of the row are missing or do not match: {_AS_IT_IS}")
    if operation == "delete" and old is None:
        reason = "the deleted row is not named: give the table a primary key, or set its REPLICA IDENTITY"
        return Refused("no-key", reason)
    primary_key = _primary_key(body.get("pk"))
    return RowChange(operation, body.get("schema"), body.get("table"), new, old, primary_key)


def columns_of_tables(rows: Iterable[object]) -> dict[tuple[str, str], set[str]]:
    """Return the columns that each table certainly has."""
    columns: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        if isinstance(row, RowChange) and row.new is not None:
            columns.setdefault(row.name, set()).update(row.new.values)
    return columns


def key_of(row: RowChange, columns: set[str]) -> tuple[str, ...] | None:
    """Return the primary key, or the replica identity if it is certainly not the whole row."""
    if row.primary_key or row.old is None:
        return row.primary_key
    names = tuple(row.old.values)
    known = set(row.new.values) if row.new is not None else columns
    return names if len(names) == 1 or set(names) < known else None


def declared_of(row: RowChange) -> Declared | None:
    columns = {}
    for image in (row.old, row.new):
        for column, text in (image.types if image else {}).items():
            iceberg = from_postgres(text)
            if iceberg is not None:
                columns[column] = iceberg
    if not columns:
        return None
    return Declared(columns, {column: "hex" for column, kind in columns.items() if kind == "binary"})


def _columns(body: Row, prefix: str) -> Image | None:
    """Version 1: names, types and values in parallel lists."""
    names, values = given.names_of(body.get(f"{prefix}names")), body.get(f"{prefix}values")
    if names is None or not isinstance(values, list) or len(values) != len(names):
        return None
    types = body.get(f"{prefix}types")
    known = types if isinstance(types, list) and len(types) == len(names) else []
    return Image(dict(zip(names, values, strict=True)), dict(zip(names, known, strict=False)))


def _listed(value: object) -> Image | None:
    """Version 2: `[{name, type, value}]`."""
    if not isinstance(value, list) or not value:
        return None
    image = Image({}, {})
    for column in value:
        if not isinstance(column, dict) or not isinstance(column.get("name"), str) or "value" not in column:
            return None
        image.values[column["name"]] = column["value"]
        if "type" in column:
            image.types[column["name"]] = column["type"]
    return image


def _primary_key(value: object) -> tuple[str, ...] | None:
    """Return the primary key: `{pknames: [...]}` in version 1, `[{name, type}]` in version 2; empty for a
    table without one.
    """
    if isinstance(value, dict):
        return given.names_of(value.get("pknames"))
    if isinstance(value, list):
        return given.names_of([column.get("name") for column in value if isinstance(column, dict)])
    return None


# -- messages

NAME = "wal2json"
_ACTIONS = frozenset("IUDTBCM")
_MESSAGE = "logical message"


def recognises(event: object) -> bool:
    if not isinstance(event, dict):
        return False
    change = event.get("change")
    if isinstance(change, list):
        return not change or (isinstance(change[0], dict) and "kind" in change[0])
    action = event.get("action")
    if not isinstance(action, str) or action not in _ACTIONS:
        return False
    return action in "BCM" or "table" in event


def read(events: Sequence[tuple[int, Any]], context: RequestContext, parsed: ParsedRequest) -> None:
    rows = {index: _rows(event) for index, event in events}
    columns = columns_of_tables(row for some in rows.values() for row in some)
    reading = _Reading(given.source_of(context, NAME), columns, fingerprint([event for _, event in events]))

    def read_one(index: int, event: Row, context: RequestContext, parsed: ParsedRequest) -> None:
        if isinstance(event.get("change"), list):
            reading.transaction(index, event, rows[index], context, parsed)
        elif event.get("action") in ("B", "C", "M"):
            reading.border(index, event, parsed)
        else:
            parsed.changes.append(reading.row(index, event, rows[index][0], context))

    given.read_each(events, context, parsed, read_one)


def _rows(event: object) -> list[RowChange | Refused]:
    """Return as many rows as version 1's list has; one for an object of version 2."""
    change = event.get("change") if isinstance(event, dict) else None
    return [row_change(element) for element in (change if isinstance(change, list) else [event])]


@dataclass(slots=True)
class _Reading:
    """One request: the last B (begin), and what came before in it."""

    source: str
    columns: dict[tuple[str, str], set[str]]
    request: str  # the digest of all its events
    seen: Counter[str] = field(default_factory=Counter)
    open_name: str | None = None
    open_end: int | None = None
    ordinal: int = 0

    def transaction(
        self,
        index: int,
        event: Row,
        rows: list[RowChange | Refused],
        context: RequestContext,
        parsed: ParsedRequest,
    ) -> None:
        """Version 1: a whole transaction in one object."""
        end = _lsn(event.get("nextlsn"))
        name = _name(event, end)
        last: Change | None = None
        refusals = len(parsed.rejects)
        for ordinal, (element, row) in enumerate(zip(event["change"], rows, strict=True)):
            if isinstance(element, dict) and element.get("kind") == "message":
                continue
            try:
                change = self._change(index, row, context)
            except Refused as refused:
                given.add_reject(index, {**event, "change": [element]}, refused, context, parsed)
                continue
            parts = (event.get("xid"), event.get("nextlsn"), event.get("timestamp"), ordinal)
            change.identity = fingerprint(*parts) if name else ""
            change.position = "" if end is None else position_of(end, ordinal)
            change.transaction = name or fingerprint(event)
            change.time_ms = given.time_ms_of(event.get("timestamp"))
            parsed.changes.append(change)
            last = change
        if last is not None:
            last.transaction_ends = True
        elif len(parsed.rejects) == refusals:
            parsed.ignored[index] = _MESSAGE if event["change"] else "a transaction without changes"

    def border(self, index: int, event: Row, parsed: ParsedRequest) -> None:
        """Version 2: begin, commit, or a message between them."""
        if event["action"] == "M":
            parsed.ignored[index] = _MESSAGE
            return
        end = _lsn(event.get("nextlsn"))
        if event["action"] == "B":
            self.open_name, self.open_end, self.ordinal = _name(event, end), end, 0
            parsed.ignored[index] = "begin of a transaction"
            if self.open_name is not None:
                parsed.begins.append(TransactionBegin(index, self.source, self.open_name))
            return
        name = _name(event, end)
        if name is None:
            parsed.ignored[index] = "end of a transaction without a name: set include-xids"
        else:
            parsed.ends.append(TransactionEnd(index, self.source, name))
        self.open_name, self.open_end = None, None

    def row(self, index: int, event: Row, row: RowChange | Refused, context: RequestContext) -> Change:
        """Version 2: a row, of the transaction that it names or that is open."""
        change = self._change(index, row, context)
        if self.open_end is not None:
            change.position = position_of(self.open_end, self.ordinal)
            self.ordinal += 1
        change.transaction = _name(event, None) or self.open_name
        change.identity = self._identity(event, has_key=bool(change.key))
        change.time_ms = given.time_ms_of(event.get("timestamp"))
        return change

    def _identity(self, event: Row, *, has_key: bool) -> str:
        """Return the identity. Rows of one COPY share an lsn: equal rows among them, of a table that may have
        no key, are numbered within the request, which has the same content when it is sent again.
        """
        if _lsn(event.get("lsn")) is None:
            return ""
        identity = fingerprint(event)
        self.seen[identity] += 1
        return identity if has_key else numbered_identity(identity, f"{self.request}{self.seen[identity]:x}")

    def _change(self, index: int, row: RowChange | Refused, context: RequestContext) -> Change:
        if isinstance(row, Refused):
            raise row
        return Change(
            index,
            table_of(row.schema, row.table, context),
            row.operation,
            before=row.old.values if row.old is not None and row.operation in ("update", "delete") else None,
            after=row.new.values if row.new is not None and row.operation in ("insert", "update") else None,
            key=key_of(row, self.columns.get(row.name, set())),
            source=self.source,
            declared=declared_of(row),
        )


def _name(event: Row, end: int | None) -> str | None:
    """Return the name of a transaction: its xid, else where it ends."""
    xid = given.number_of(event.get("xid"))
    if xid is not None:
        return str(xid)
    return None if end is None else f"{end:x}"


def _lsn(value: object) -> int | None:
    """Parse `16/B374D848`: two hexadecimal halves."""
    if not isinstance(value, str) or len(value) > 17:
        return None
    high, slash, low = value.partition("/")
    try:
        number = (int(high, 16) << 32) + int(low, 16) if slash else -1
    except ValueError:
        return None
    return number if 0 <= number < 2**64 else None
