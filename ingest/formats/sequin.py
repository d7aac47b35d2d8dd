"""Sequin's webhook sink: `{record, changes, action, metadata}`, one message for each row.

`changes` has the old values of the changed columns; without REPLICA IDENTITY FULL it may be empty. A
transaction is `commit_lsn`, the order inside it `commit_idx`; rows of a backfill (`read`) have neither. Rows
are whole, with a placeholder for each large value that an update did not change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingest.change import Change, Operation, ParsedRequest, RequestContext, Row, position_of, table_of
from ingest.formats import fields as given

NAME = "sequin"
_OPERATIONS: dict[str, Operation] = {
    "insert": "insert",
    "update": "update",
    "delete": "delete",
    "read": "read",
}
_UNCHANGED = "unchanged_toast"  # a placeholder for a large value that the update did not change


def recognises(event: object) -> bool:
    if not isinstance(event, dict) or "record" not in event or "action" not in event:
        return False
    metadata = event.get("metadata")
    return isinstance(metadata, dict) and "table_name" in metadata


def read(events: Sequence[tuple[int, Any]], context: RequestContext, parsed: ParsedRequest) -> None:
    given.read_each(events, context, parsed, _read)


def _read(index: int, event: Row, context: RequestContext, parsed: ParsedRequest) -> None:
    metadata = given.row_of(event.get("metadata")) or {}
    table = table_of(metadata.get("table_schema"), metadata.get("table_name"), context)
    source = _source(metadata, context)
    operation = _OPERATIONS.get(str(event.get("action")))
    if operation is None:
        given.refuse_operation(event.get("action"), "insert, update, delete and read", table, source)
    record = given.wanted_row(event.get("record"), "record", table, source)
    before, after = _images(operation, record, given.row_of(event.get("changes")) or {})
    lsn = None if operation == "read" else given.number_of(metadata.get("commit_lsn"))
    ordinal = given.number_of(metadata.get("commit_idx")) or 0
    parsed.changes.append(
        Change(
            index,
            table,
            operation,
            before=before,
            after=after,
            source=source,
            position="" if lsn is None else position_of(lsn, ordinal),
            identity=given.text_of(metadata.get("idempotency_key")),
            transaction=None if lsn is None else str(lsn),
            time_ms=given.time_ms_of(metadata.get("commit_timestamp")),
            unchanged=() if after is None else tuple(column for column in record if column not in after),
        )
    )


def _images(operation: Operation, record: Row, changes: Row) -> tuple[Row | None, Row | None]:
    if operation == "delete":
        return record, None
    if operation != "update":
        return None, record
    after = {column: value for column, value in record.items() if value != _UNCHANGED or column in changes}
    return ({**after, **changes} if changes else None), after


def _source(metadata: Row, context: RequestContext) -> str:
    """Return the source. Positions belong to a database: two databases must not share a source."""
    database = given.row_of(metadata.get("database")) or {}
    return given.source_of(context, NAME, database.get("name") or metadata.get("database_name"))
