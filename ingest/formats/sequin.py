"""Sequin's webhook sink: `{record, changes, action, metadata}`, one message for each row.

`changes` holds the old values of the changed columns; without REPLICA IDENTITY FULL it may be empty. A
transaction is `commit_lsn`, the order inside it `commit_idx`; rows of a backfill (`read`) have neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingest.change import Change, Context, Operation, Parsed, Row, position_of
from ingest.formats import events as given

NAME = "sequin"
_OPERATIONS: dict[str, Operation] = {
    "insert": "insert",
    "update": "update",
    "delete": "delete",
    "read": "read",
}
_UNCHANGED = "unchanged_toast"  # stands for a large value that the update did not touch


def recognises(event: object) -> bool:
    if not isinstance(event, dict) or "record" not in event or "action" not in event:
        return False
    metadata = event.get("metadata")
    return isinstance(metadata, dict) and "table_name" in metadata


def read(events: Sequence[tuple[int, Any]], context: Context, parsed: Parsed) -> None:
    for index, event in events:
        _read(index, event, context, parsed)


def _read(index: int, event: object, context: Context, parsed: Parsed) -> None:
    message = given.row_of(event) or {}
    metadata = given.row_of(message.get("metadata")) or {}
    table = given.table_of(context, metadata.get("table_name"), metadata.get("table_schema"))
    if table is None:
        given.refuse(parsed, index, event, given.NO_TABLE, "no-table")
        return
    source = _source(metadata, context)
    operation = _OPERATIONS.get(str(message.get("action")))
    if operation is None:
        reason = (
            f"the action {given.short(message.get('action'))} is none of insert, update, delete and read: "
            "send Sequin's own message, without a transform"
        )
        given.refuse(parsed, index, event, reason, "unknown-operation", table=table, source=source)
        return
    record = given.row_of(message.get("record"))
    if record is None:
        reason = "`record` is not an object of columns: send Sequin's own message, without a transform"
        given.refuse(parsed, index, event, reason, "no-row", table=table, source=source)
        return
    lsn, place = given.number_of(metadata.get("commit_lsn")), given.number_of(metadata.get("commit_idx"))
    before, after = _images(operation, record, given.row_of(message.get("changes")) or {})
    key = metadata.get("idempotency_key")
    parsed.changes.append(
        Change(
            index,
            table,
            operation,
            before=before,
            after=after,
            source=source,
            position="" if lsn is None or operation == "read" else position_of(lsn, place or 0),
            identity=given.identity_of(key if isinstance(key, str) else "", context, index),
            transaction=None if lsn is None or operation == "read" else str(lsn),
            time_ms=given.time_ms_of(metadata.get("commit_timestamp")),
        )
    )


def _images(operation: Operation, record: Row, changes: Row) -> tuple[Row | None, Row | None]:
    if operation == "delete":
        return record, None
    if operation != "update":
        return None, record
    after = {
        column: value for column, value in record.items() if value != _UNCHANGED or column in changes
    }
    return ({**after, **changes} if changes else None), after


def _source(metadata: Row, context: Context) -> str:
    """Positions belong to a database: two of them must not share a source."""
    database = given.row_of(metadata.get("database")) or {}
    return given.source_of(context, NAME, database.get("name") or metadata.get("database_name"))
