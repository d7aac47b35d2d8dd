"""Supabase database webhooks: `{type, table, schema, record, old_record}`.

They have neither a time nor an order: changes apply in the order of arrival, and none has an identity. Rows
are whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingest.change import Change, Operation, ParsedRequest, RequestContext, Row, table_of
from ingest.formats import fields as given

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


def read(events: Sequence[tuple[int, Any]], context: RequestContext, parsed: ParsedRequest) -> None:
    given.read_each(events, context, parsed, _read)


def _read(index: int, event: Row, context: RequestContext, parsed: ParsedRequest) -> None:
    table = table_of(event.get("schema"), event.get("table"), context)
    source = given.source_of(context, NAME)
    operation = _OPERATIONS.get(str(event.get("type")))
    if operation is None:
        given.refuse_operation(event.get("type"), "INSERT, UPDATE and DELETE", table, source)
    change = Change(index, table, operation, source=source, unchanged=())
    if operation == "delete":
        change.before = given.wanted_row(event.get("old_record"), "old_record", table, source)
    else:
        change.after = given.wanted_row(event.get("record"), "record", table, source)
    if operation == "update":
        change.before = given.row_of(event.get("old_record"))
    parsed.changes.append(change)
