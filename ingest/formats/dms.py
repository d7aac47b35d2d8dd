"""AWS DMS, as it writes to Kinesis and Kafka: `{data, metadata{operation, schema-name, table-name, ...}}`.

`metadata.timestamp` is when DMS built the message: the order of the task. With IncludeTransactionDetails a
record also says its place in its transaction, which stays the same when the task is started again. Unless
IncludeNullAndEmpty is on, null columns are left out; in an update those that the before image has are set to
null, of the others nothing is known and they keep their value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingest.change import Change, Context, Operation, Parsed, Row, TableName, position_of
from ingest.formats import events as given

NAME = "dms"
_OPERATIONS: dict[str, Operation] = {
    "load": "read",
    "insert": "insert",
    "update": "update",
    "delete": "delete",
}
_OWN_TABLES = "awsdms_"  # DMS's own bookkeeping: awsdms_apply_exceptions and others


def recognises(event: object) -> bool:
    metadata = event.get("metadata") if isinstance(event, dict) else None
    return isinstance(metadata, dict) and "record-type" in metadata and "operation" in metadata


def read(events: Sequence[tuple[int, Any]], context: Context, parsed: Parsed) -> None:
    for index, event in events:
        record = given.row_of(event) or {}
        metadata = given.row_of(record.get("metadata")) or {}
        name = metadata.get("table-name")
        if metadata.get("record-type") == "control":
            parsed.ignored[index] = f"control record: {metadata.get('operation')}"
        elif isinstance(name, str) and name.startswith(_OWN_TABLES):
            parsed.ignored[index] = "a table of DMS itself"
        else:
            _read(index, record, metadata, context, parsed)


def _read(index: int, record: Row, metadata: Row, context: Context, parsed: Parsed) -> None:
    table = given.table_of(context, metadata.get("table-name"), metadata.get("schema-name"))
    if table is None:
        given.refuse(parsed, index, record, given.NO_TABLE, "no-table")
        return
    source = given.source_of(context, NAME)
    operation = _OPERATIONS.get(str(metadata.get("operation")))
    if operation is None:
        reason = f"the operation {given.short(metadata.get('operation'))} is none of load, insert, update and "
        reason += "delete: send the DMS record as it is"
        given.refuse(parsed, index, record, reason, "unknown-operation", table=table, source=source)
        return
    data = given.row_of(record.get("data"))
    image = given.row_of(record.get("before-image"))
    if data is None and (operation != "delete" or image is None):
        reason = "`data` is not an object of columns: set the endpoint's MessageFormat to json"
        given.refuse(parsed, index, record, reason, "no-row", table=table, source=source)
        return
    parsed.changes.append(_change(index, table, operation, data or {}, image, metadata, record, context, source))


def _change(
    index: int,
    table: TableName,
    operation: Operation,
    data: Row,
    image: Row | None,
    metadata: Row,
    record: Row,
    context: Context,
    source: str,
) -> Change:
    built_us = given.time_us_of(metadata.get("timestamp"))
    committed_ms = given.time_ms_of(metadata.get("commit-timestamp"))
    transaction = metadata.get("transaction-id")
    before: Row | None = None
    if operation == "delete":
        before = {**(image or {}), **data}
    elif operation == "update":
        before = image
    return Change(
        index,
        table,
        operation,
        before=before,
        after=None if operation == "delete" else {**dict.fromkeys(before or ()), **data},
        source=source,
        position="" if built_us is None or built_us < 0 else position_of(built_us),
        identity=given.identity_of(_identity(metadata, record), context, index),
        transaction=None if transaction is None or operation == "read" else str(transaction),
        time_ms=committed_ms if committed_ms is not None or built_us is None else built_us // 1000,
    )


def _identity(metadata: Row, record: Row) -> str:
    transaction, place = metadata.get("transaction-id"), metadata.get("transaction-record-id")
    if transaction is not None and place is not None:
        table = (metadata.get("schema-name"), metadata.get("table-name"))
        return given.fingerprint(transaction, place, metadata.get("commit-timestamp"), *table)
    return given.fingerprint(record) if isinstance(metadata.get("timestamp"), str) else ""
