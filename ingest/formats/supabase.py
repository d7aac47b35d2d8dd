"""Supabase database webhooks: `{type, table, schema, record, old_record}`.

They say neither when nor in which order: changes count as they arrive, and none is ever a repetition of
another, unless the request names its batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingest.change import Change, Context, Operation, Parsed
from ingest.formats import events as given

NAME = "supabase"
_OPERATIONS: dict[str, Operation] = {"INSERT": "insert", "UPDATE": "update", "DELETE": "delete"}


def recognises(event: object) -> bool:
    return (
        isinstance(event, dict)
        and "record" in event
        and "old_record" in event
        and isinstance(event.get("type"), str)
        and isinstance(event.get("table"), str)
    )


def read(events: Sequence[tuple[int, Any]], context: Context, parsed: Parsed) -> None:
    for index, event in events:
        _read(index, event, context, parsed)


def _read(index: int, event: object, context: Context, parsed: Parsed) -> None:
    body = given.row_of(event) or {}
    table = given.table_of(context, body.get("table"), body.get("schema"))
    if table is None:
        given.refuse(parsed, index, event, given.NO_TABLE, "no-table")
        return
    source = given.source_of(context, NAME)
    operation = _OPERATIONS.get(str(body.get("type")))
    if operation is None:
        reason = f"the type {given.short(body.get('type'))} is none of INSERT, UPDATE and DELETE: "
        reason += "send the webhook's own payload"
        given.refuse(parsed, index, event, reason, "unknown-operation", table=table, source=source)
        return
    record, old = given.row_of(body.get("record")), given.row_of(body.get("old_record"))
    if (old if operation == "delete" else record) is None:
        wanted = "old_record" if operation == "delete" else "record"
        reason = f"`{wanted}` is not an object of columns: send the webhook's own payload"
        given.refuse(parsed, index, event, reason, "no-row", table=table, source=source)
        return
    parsed.changes.append(
        Change(
            index,
            table,
            operation,
            before=None if operation == "insert" else old,
            after=None if operation == "delete" else record,
            source=source,
            identity=given.identity_of("", context, index),
        )
    )
