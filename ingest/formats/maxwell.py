"""Maxwell: `{database, table, type, ts, xid, xoffset, commit, position, data, old}`, one object for each row.

`old` has only the changed columns. All rows of a binlog event share its `position`; `xoffset` distinguishes
them, and the last row of a transaction has `commit` instead. Without `xoffset` (output_xoffset), two equal
rows of a table without a key cannot be distinguished from one row that was sent twice, so such rows have no
identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingest.change import (
    Change,
    Operation,
    ParsedRequest,
    RequestContext,
    Row,
    TransactionBegin,
    fingerprint,
    position_of,
    table_of,
)
from ingest.formats import fields as given

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
_LAST = 2**63 - 1  # the offset of the last row of a transaction


def recognises(event: object) -> bool:
    if not isinstance(event, dict) or "database" not in event or isinstance(event.get("data"), list):
        return False
    kind = event.get("type")
    return isinstance(kind, str) and (kind in _IGNORED or (kind in _OPERATIONS and "ts" in event))


def read(events: Sequence[tuple[int, Any]], context: RequestContext, parsed: ParsedRequest) -> None:
    given.read_each(events, context, parsed, _read)


def _read(index: int, event: Row, context: RequestContext, parsed: ParsedRequest) -> None:
    kind = str(event.get("type"))
    if kind in _IGNORED:
        parsed.ignored[index] = _IGNORED[kind]
        return
    table = table_of(event.get("database"), event.get("table"), context)
    source = given.source_of(context, NAME, given.number_of(event.get("server_id")))
    operation = _OPERATIONS.get(kind)
    if operation is None:
        known = "insert, update, delete and bootstrap-insert"
        given.refuse_operation(event.get("type"), known, table, source)
    if "encrypted" in event:
        reason = "the row is encrypted: set Maxwell's `encrypt` to none"
        raise given.RowRefused("encrypted", reason, table, source)
    data = given.wanted_row(event.get("data"), "data", table, source)
    old = given.row_of(event.get("old")) or {}
    key = given.names_of(event.get("primary_key_columns"))
    xid, time_s = given.number_of(event.get("xid")), given.number_of(event.get("ts"))
    if xid is not None and event.get("commit") is not True:
        parsed.begins.append(TransactionBegin(index, source, str(xid)))  # its last row will mark its end
    parsed.changes.append(
        Change(
            index,
            table,
            operation,
            before=data if operation == "delete" else {**data, **old} if operation == "update" else None,
            # With output_nulls=false, a column that became null is only in `old`.
            after=None if operation == "delete" else {**dict.fromkeys(old), **data},
            unchanged=(),
            key=key,
            source=source,
            position=_position(event),
            identity=_identity(event, key),
            transaction=None if xid is None else str(xid),
            transaction_ends=xid is not None and event.get("commit") is True,
            time_ms=None if time_s is None else time_s * 1000,
            origin=str(given.number_of(event.get("server_id")) or ""),
        )
    )


def _position(event: Row) -> str:
    """Return the position: `mysql-bin.000006:800911`, then the offset in the transaction."""
    text = event.get("position")
    if not isinstance(text, str):
        return ""
    file, _, offset_text = text.rpartition(":")
    offset = given.number_of(offset_text)
    if offset is None or not file:
        return ""
    file_number = given.number_of(file.rpartition(".")[2])
    ordinal = _LAST if event.get("commit") is True else given.number_of(event.get("xoffset")) or 0
    return position_of(file if file_number is None else file_number, offset, ordinal)


def _identity(event: Row, key: tuple[str, ...] | None) -> str:
    """Return the identity. Transaction ids restart with the server: the time and the position distinguish
    them.
    """
    xid, xoffset = given.number_of(event.get("xid")), given.number_of(event.get("xoffset"))
    ordinal = "end" if event.get("commit") is True else xoffset
    where = [event.get(part) for part in ("server_id", "ts", "position", "gtid")]
    if xid is not None and ordinal is not None:
        return fingerprint(xid, ordinal, *where)
    if key and isinstance(event.get("position"), str):
        return fingerprint(
            *where, *(event.get(part) for part in ("database", "table", "type", "data", "old"))
        )
    return ""
