"""Hasura event triggers: `{id, created_at, event{op, data{old, new}}, table{schema, name}}`.

Delivery is at least once and may be out of order; `id` stays the same over the retries of an event, and
`created_at`, the time of the trigger, puts events into order again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingest.change import Change, Context, Operation, Parsed, Row, position_of
from ingest.formats import events as given

NAME = "hasura"
_OPERATIONS: dict[str, Operation] = {
    "INSERT": "insert",
    "UPDATE": "update",
    "DELETE": "delete",
    "MANUAL": "update",  # somebody sent the row as it is: it may be known already
}


def recognises(event: object) -> bool:
    body = _body(event)
    inner, table = body.get("event"), body.get("table")
    return isinstance(inner, dict) and "op" in inner and "data" in inner and isinstance(table, dict)


def read(events: Sequence[tuple[int, Any]], context: Context, parsed: Parsed) -> None:
    for index, event in events:
        _read(index, event, context, parsed)


def _body(event: object) -> Row:
    """The event itself, or what a request transform put under `payload`."""
    body = given.row_of(event) or {}
    return given.row_of(body.get("payload")) or body


def _read(index: int, event: object, context: Context, parsed: Parsed) -> None:
    body = _body(event)
    named = given.row_of(body.get("table")) or {}
    table = given.table_of(context, named.get("name"), named.get("schema"))
    if table is None:
        given.refuse(parsed, index, event, given.NO_TABLE, "no-table")
        return
    source = given.source_of(context, NAME)
    inner = given.row_of(body.get("event")) or {}
    operation = _OPERATIONS.get(str(inner.get("op")))
    if operation is None:
        reason = f"the op {given.short(inner.get('op'))} is none of INSERT, UPDATE, DELETE and MANUAL: "
        reason += "send Hasura's own payload"
        given.refuse(parsed, index, event, reason, "unknown-operation", table=table, source=source)
        return
    data = given.row_of(inner.get("data")) or {}
    old, new = given.row_of(data.get("old")), given.row_of(data.get("new"))
    if (old if operation == "delete" else new) is None:
        wanted = "old" if operation == "delete" else "new"
        reason = f"`event.data.{wanted}` is not an object of columns: send Hasura's own payload"
        given.refuse(parsed, index, event, reason, "no-row", table=table, source=source)
        return
    created_us = given.time_us_of(body.get("created_at"))
    name = body.get("id")
    parsed.changes.append(
        Change(
            index,
            table,
            operation,
            before=None if operation == "insert" else old,
            after=None if operation == "delete" else new,
            source=source,
            position="" if created_us is None or created_us < 0 else position_of(created_us),
            identity=given.identity_of(name if isinstance(name, str) else "", context, index),
            time_ms=None if created_us is None else created_us // 1000,
        )
    )
