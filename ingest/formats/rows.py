"""Plain rows: any object is a row, and each is an insert. The table comes from the path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingest.change import NO_TABLE, Change, ParsedRequest, Refused, RequestContext
from ingest.formats.fields import reject

NAME = "rows"

_NO_TABLE = Refused("no-table", f"{NO_TABLE}, or send the events of a producer as they are")
# An event with some of these fields was probably meant to be of this format.
_FIELDS = (("operation", "table", "sequence", "timestamp", "rowId"), ("op", "source", "after"))
_NOT_OBJECT = Refused("not-object", "the row is not a JSON object: send an object of columns for each row")


def recognises(event: object) -> bool:
    return isinstance(event, dict)


def read(events: Sequence[tuple[int, Any]], context: RequestContext, parsed: ParsedRequest) -> None:
    table, source = context.table, context.source or ""
    key = context.key if context.key is not None else ()
    for index, event in events:
        if event.__class__ is not dict:
            parsed.rejects.append(reject(index, event, _NOT_OBJECT, context))
        elif table is None:
            parsed.rejects.append(reject(index, event, _no_table(event), context))
        else:
            parsed.changes.append(Change(index, table, "insert", None, event, key, None, source))


def _no_table(event: dict[str, Any]) -> Refused:
    """Return an error that names the missing fields, if the event looks like one of a known format."""
    for fields in _FIELDS:
        present = [f"`{name}`" for name in fields if name in event]
        missing = [f"`{name}`" for name in fields if name not in event]
        if present and missing:
            reason = f"the event has {', '.join(present)} but no {', '.join(missing)}: add what is missing"
            return Refused("no-table", f"{reason}, or post plain rows to /cdc/{{namespace}}/{{table}}")
    return _NO_TABLE
