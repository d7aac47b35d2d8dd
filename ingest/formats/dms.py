"""AWS DMS, as it writes to Kinesis and Kafka: `{data, metadata{operation, schema-name, table-name, ...}}`.

`metadata.timestamp` is when DMS built the message: the order of the task. With IncludeTransactionDetails a
record also has its number in its transaction, which stays the same when the task restarts. Unless
IncludeNullAndEmpty is on, null columns are left out: a column that a row lacks is null.
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
    fingerprint,
    position_of,
    table_of,
)
from ingest.formats import fields as given

NAME = "dms"
_OPERATIONS: dict[str, Operation] = {
    "load": "read",
    "insert": "insert",
    "update": "update",
    "delete": "delete",
}
_OWN_TABLES = "awsdms_"  # DMS's own tables: awsdms_apply_exceptions and others


def recognises(event: object) -> bool:
    metadata = event.get("metadata") if isinstance(event, dict) else None
    return isinstance(metadata, dict) and "record-type" in metadata and "operation" in metadata


def read(events: Sequence[tuple[int, Any]], context: RequestContext, parsed: ParsedRequest) -> None:
    given.read_each(events, context, parsed, _read)


def _read(index: int, event: Row, context: RequestContext, parsed: ParsedRequest) -> None:
    metadata = given.row_of(event.get("metadata")) or {}
    name = metadata.get("table-name")
    if metadata.get("record-type") == "control":
        parsed.ignored[index] = f"control record: {given.short(metadata.get('operation'))}"
        return
    if isinstance(name, str) and name.startswith(_OWN_TABLES):
        parsed.ignored[index] = "a table of DMS itself"
        return
    table = table_of(metadata.get("schema-name"), name, context)
    source = given.source_of(context, NAME)
    operation = _OPERATIONS.get(str(metadata.get("operation")))
    if operation is None:
        given.refuse_operation(metadata.get("operation"), "load, insert, update and delete", table, source)
    image = given.row_of(event.get("before-image"))
    data = given.row_of(event.get("data"))
    change = Change(index, table, operation, source=source, unchanged=())
    if operation == "delete":
        row = given.wanted_row(image if data is None else data, "data", table, source)
        change.before = {**(image or {}), **row}
    else:
        row = given.wanted_row(data, "data", table, source)
        change.before = image if operation == "update" else None
        change.after = {**dict.fromkeys(change.before or ()), **row}
    change.identity = _identity(metadata, event)
    _set_position(change, metadata)
    parsed.changes.append(change)


def _set_position(change: Change, metadata: Row) -> None:
    built_us = given.number_of(given.time_us_of(metadata.get("timestamp")))
    change.time_ms = given.time_ms_of(metadata.get("commit-timestamp"))
    if built_us is not None:
        change.position = position_of(built_us)
        change.time_ms = change.time_ms if change.time_ms is not None else built_us // 1000
    transaction = metadata.get("transaction-id")
    if isinstance(transaction, int | str) and change.operation != "read":
        change.transaction = str(transaction)


def _identity(metadata: Row, event: Row) -> str:
    transaction, ordinal = metadata.get("transaction-id"), metadata.get("transaction-record-id")
    if transaction is not None and ordinal is not None:
        table = (metadata.get("schema-name"), metadata.get("table-name"))
        return fingerprint(transaction, ordinal, metadata.get("commit-timestamp"), *table)
    return fingerprint(event) if isinstance(metadata.get("timestamp"), str) else ""
