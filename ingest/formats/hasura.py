"""Hasura event triggers: `{id, created_at, event{op, data{old, new}}, table{schema, name}}`.

Delivery is at least once and may be out of order. `id` stays the same over the retries of an event, and
`created_at`, the time of the trigger, orders the events. Rows are whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingest.change import Change, Operation, ParsedRequest, RequestContext, Row, position_of, table_of
from ingest.formats import fields as given

NAME = "hasura"
_OPERATIONS: dict[str, Operation] = {
    "INSERT": "insert",
    "UPDATE": "update",
    "DELETE": "delete",
    "MANUAL": "update",  # a user sent the current row: the table may have it already
}


def recognises(event: object) -> bool:
    if not isinstance(event, dict):
        return False
    body = _body(event)
    inner, table = body.get("event"), body.get("table")
    return isinstance(inner, dict) and "op" in inner and "data" in inner and isinstance(table, dict)


def read(events: Sequence[tuple[int, Any]], context: RequestContext, parsed: ParsedRequest) -> None:
    given.read_each(events, context, parsed, _read)


def _body(event: Row) -> Row:
    """Return the event itself, or the content of `payload` if a request transform wrapped it."""
    return given.row_of(event.get("payload")) or event


def _read(index: int, event: Row, context: RequestContext, parsed: ParsedRequest) -> None:
    body = _body(event)
    named = given.row_of(body.get("table")) or {}
    table = table_of(named.get("schema"), named.get("name"), context)
    source = given.source_of(context, NAME)
    inner = given.row_of(body.get("event")) or {}
    operation = _OPERATIONS.get(str(inner.get("op")))
    if operation is None:
        given.refuse_operation(inner.get("op"), "INSERT, UPDATE, DELETE and MANUAL", table, source)
    data = given.row_of(inner.get("data")) or {}
    created_us = given.number_of(given.time_us_of(body.get("created_at")))
    change = Change(index, table, operation, source=source, unchanged=())
    change.identity = given.text_of(body.get("id"))
    if operation == "delete":
        change.before = given.wanted_row(data.get("old"), "event.data.old", table, source)
    else:
        change.after = given.wanted_row(data.get("new"), "event.data.new", table, source)
    if operation == "update":
        change.before = given.row_of(data.get("old"))
    if created_us is not None:
        change.position = position_of(created_us)
        change.time_ms = created_us // 1000
    parsed.changes.append(change)
