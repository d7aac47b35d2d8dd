"""wal2json, both versions. 1: one object `{change: [...], xid, nextlsn, timestamp}` for each transaction.
2: one object for each row, `{action: I|U|D|T|B|C|M, columns, identity, pk, xid, lsn, timestamp}`.

A transaction's position is the end of its commit record (`nextlsn`, of B in version 2), then the place in it.
The `lsn` of a row alone is not one: PostgreSQL delivers in order of commit. Unchanged TOAST columns are left
out, so they keep their value. `bytea` is hexadecimal without a prefix.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ingest.change import Change, Context, Parsed, Row, TransactionEnd, position_of
from ingest.formats import events as given
from ingest.formats.wal2json_rows import (
    RowChange,
    Unreadable,
    columns_of_tables,
    declared_of,
    key_of,
    row_change,
)

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


def read(events: Sequence[tuple[int, Any]], context: Context, parsed: Parsed) -> None:
    bodies = [(index, given.row_of(event) or {}, event) for index, event in events]
    rows = {index: _rows(body) for index, body, _ in bodies}
    columns = columns_of_tables(row for some in rows.values() for row in some)
    reading = _Reading(context, parsed, given.source_of(context, NAME), columns)
    for index, body, event in bodies:
        if isinstance(body.get("change"), list):
            reading.transaction(index, body, rows[index])
        elif body.get("action") in ("B", "C", "M"):
            reading.border(index, body)
        else:
            reading.row(index, body, event, rows[index][0])


def _rows(body: Row) -> list[RowChange | Unreadable]:
    """As long as version 1's list; one for an object of version 2."""
    change = body.get("change")
    elements: list[Any] = change if isinstance(change, list) else [body]
    return [row_change(given.row_of(element) or {}) for element in elements]


@dataclass(slots=True)
class _Reading:
    """One request: what the B before the rows said, and what came before in it."""

    context: Context
    parsed: Parsed
    source: str
    columns: dict[tuple[str, str], set[str]]
    seen: Counter[str] = field(default_factory=Counter)
    open_name: str | None = None
    open_end: int | None = None
    place: int = 0

    def transaction(self, index: int, body: Row, rows: list[RowChange | Unreadable]) -> None:
        """Version 1: all of it in one object."""
        xid, end = given.number_of(body.get("xid")), _lsn(body.get("nextlsn"))
        name = str(xid) if xid is not None else body["nextlsn"] if end is not None else given.fingerprint(body)
        known = xid is not None or end is not None
        last: Change | None = None
        refused = False
        for ordinal, (element, row) in enumerate(zip(body["change"], rows, strict=True)):
            if isinstance(element, dict) and element.get("kind") == "message":
                continue
            change = self._change(index, {**body, "change": [element]}, row)
            if change is None:
                refused = True
                continue
            change.position = "" if end is None else position_of(end, ordinal)
            parts = (xid, body.get("nextlsn"), body.get("timestamp"), ordinal)
            identity = given.fingerprint(*parts) if known else ""
            change.identity = given.identity_of(identity, self.context, index, ordinal)
            change.transaction = name
            change.time_ms = given.time_ms_of(body.get("timestamp"))
            self.parsed.changes.append(change)
            last = change
        if last is not None:
            last.transaction_ends = True
        elif not refused:
            self.parsed.ignored[index] = _MESSAGE if body["change"] else "a transaction without changes"

    def border(self, index: int, body: Row) -> None:
        """Version 2: begin, commit, or a message in between."""
        xid, end = given.number_of(body.get("xid")), _lsn(body.get("nextlsn")) or _lsn(body.get("lsn"))
        if body["action"] == "M":
            self.parsed.ignored[index] = _MESSAGE
        elif body["action"] == "B":
            self.open_name = str(xid) if xid is not None else None if end is None else f"{end:x}"
            self.open_end, self.place = end, 0
            self.parsed.ignored[index] = "begin of a transaction"
        else:
            name = str(xid) if xid is not None else None if end is None else f"{end:x}"
            if name is None:
                self.parsed.ignored[index] = "end of a transaction that has no name (include-xids)"
            else:
                self.parsed.ends.append(TransactionEnd(index, self.source, name))
            self.open_name, self.open_end, self.place = None, None, 0

    def row(self, index: int, body: Row, event: object, row: RowChange | Unreadable) -> None:
        """Version 2: a row, of the transaction that is open or that it names."""
        change = self._change(index, event, row)
        if change is None:
            return
        xid = given.number_of(body.get("xid"))
        if self.open_end is not None:
            change.position = position_of(self.open_end, self.place)
            self.place += 1
        change.transaction = str(xid) if xid is not None else self.open_name
        change.identity = given.identity_of(self._identity(body), self.context, index)
        change.time_ms = given.time_ms_of(body.get("timestamp"))
        self.parsed.changes.append(change)

    def _identity(self, body: Row) -> str:
        """Rows of one COPY share an lsn; equal ones among them are counted."""
        if _lsn(body.get("lsn")) is None:
            return ""
        print_ = given.fingerprint(body)
        self.seen[print_] += 1
        return print_ if self.seen[print_] == 1 else f"{print_}#{self.seen[print_]}"

    def _change(self, index: int, event: object, row: RowChange | Unreadable) -> Change | None:
        if isinstance(row, Unreadable):
            table = self.context.table
            given.refuse(self.parsed, index, event, row.reason, row.code, table=table, source=self.source)
            return None
        table = given.table_of(self.context, row.table, row.schema)
        if table is None:
            given.refuse(self.parsed, index, event, given.NO_TABLE, "no-table", source=self.source)
            return None
        new = row.new.values if row.new is not None else None
        old = row.old.values if row.old is not None else None
        return Change(
            index,
            table,
            row.operation,
            before=old if row.operation in ("update", "delete") else None,
            after=new if row.operation in ("insert", "update") else None,
            key=key_of(row, self.columns.get(row.name, set())),
            source=self.source,
            declared=declared_of(row),
        )


def _lsn(value: object) -> int | None:
    """`16/B374D848`: two hexadecimal halves."""
    if not isinstance(value, str) or len(value) > 17:
        return None
    high, slash, low = value.partition("/")
    try:
        number = (int(high, 16) << 32) + int(low, 16) if slash else -1
    except ValueError:
        return None
    return number if 0 <= number < 2**64 else None
