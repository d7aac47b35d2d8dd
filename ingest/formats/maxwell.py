"""Maxwell: `{database, table, type, ts, xid, xoffset, commit, position, data, old}`, one object for each row.

`old` holds only the changed columns. All rows of a binlog event share its `position`; `xoffset` tells them
apart, and the last row of a transaction has `commit` instead. Without `xoffset` (output_xoffset) two equal rows
of a table without a key cannot be told from one row that came twice, so such rows have no identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingest.change import Change, Context, Operation, Parsed, Row, position_of
from ingest.formats import events as given

NAME = "maxwell"
_OPERATIONS: dict[str, Operation] = {
    "insert": "insert",
    "update": "update",
    "delete": "delete",
    "bootstrap-insert": "read",
}
_IGNORED = {
    "bootstrap-start": "start of a bootstrap",
    "bootstrap-complete": "end of a bootstrap",
    **dict.fromkeys(("database-create", "database-alter", "database-drop"), "DDL"),
    **dict.fromkeys(("table-create", "table-alter", "table-drop"), "DDL"),
}
_LAST = 2**63 - 1  # where the last row of a transaction stands in it


def recognises(event: object) -> bool:
    if not isinstance(event, dict) or "database" not in event or isinstance(event.get("data"), list):
        return False
    kind = event.get("type")
    return isinstance(kind, str) and (kind in _IGNORED or (kind in _OPERATIONS and "ts" in event))


def read(events: Sequence[tuple[int, Any]], context: Context, parsed: Parsed) -> None:
    for index, event in events:
        row = given.row_of(event) or {}
        kind = row.get("type")
        if isinstance(kind, str) and kind in _IGNORED:
            parsed.ignored[index] = _IGNORED[kind]
        else:
            _read(index, row, event, context, parsed)


def _read(index: int, row: Row, event: object, context: Context, parsed: Parsed) -> None:
    table = given.table_of(context, row.get("table"), row.get("database"))
    if table is None:
        given.refuse(parsed, index, event, given.NO_TABLE, "no-table")
        return
    source = given.source_of(context, NAME, given.number_of(row.get("server_id")))
    operation = _OPERATIONS.get(str(row.get("type")))
    data = given.row_of(row.get("data"))
    if operation is None:
        reason = f"the type {given.short(row.get('type'))} is not one of Maxwell's row types: send insert, "
        reason += "update, delete or bootstrap-insert"
        given.refuse(parsed, index, event, reason, "unknown-operation", table=table, source=source)
        return
    if data is None:
        encrypted = "encrypted" in row
        reason = (
            "the row is encrypted: set Maxwell's `encrypt` to none"
            if encrypted
            else "`data` is not an object of columns: send Maxwell's JSON as it is"
        )
        given.refuse(
            parsed, index, event, reason, "encrypted" if encrypted else "no-row", table=table, source=source
        )
        return
    old = given.row_of(row.get("old")) or {}
    key = given.names_of(row.get("primary_key_columns"))
    xid = given.number_of(row.get("xid"))
    time_s = given.number_of(row.get("ts"))
    parsed.changes.append(
        Change(
            index,
            table,
            operation,
            before=data if operation == "delete" else {**data, **old} if operation == "update" else None,
            # With output_nulls=false a column that became null is in `old` alone.
            after=None if operation == "delete" else {**dict.fromkeys(old), **data},
            key=key,
            source=source,
            position=_position(row),
            identity=given.identity_of(_identity(row, key), context, index),
            transaction=None if xid is None else str(xid),
            transaction_ends=xid is not None and row.get("commit") is True,
            time_ms=None if time_s is None else time_s * 1000,
        )
    )


def _position(row: Row) -> str:
    """`mysql-bin.000006:800911`, then the place in the transaction."""
    text = row.get("position")
    if not isinstance(text, str):
        return ""
    file, _, offset_text = text.rpartition(":")
    offset = given.number_of(offset_text)
    if offset is None or not file:
        return ""
    file_number = given.number_of(file.rpartition(".")[2])
    place = _LAST if row.get("commit") is True else given.number_of(row.get("xoffset")) or 0
    return position_of(file if file_number is None else file_number, offset, place)


def _identity(row: Row, key: tuple[str, ...] | None) -> str:
    """A transaction id begins again when the server does: the time and the position tell the two apart."""
    xid, xoffset = given.number_of(row.get("xid")), given.number_of(row.get("xoffset"))
    place = "end" if row.get("commit") is True else xoffset
    where = (row.get("server_id"), row.get("ts"), row.get("position"), row.get("gtid"))
    if xid is not None and place is not None:
        return given.fingerprint(xid, place, *where)
    if key and isinstance(row.get("position"), str):
        return given.fingerprint(*where, *(row.get(part) for part in ("database", "table", "data", "old")))
    return ""
