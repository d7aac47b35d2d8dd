"""Plain rows: any object is a row, and each is an insert. The table comes from the path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingest.change import Change, Context, Parsed
from ingest.formats.contract import NO_TABLE, Refused, reject

NAME = "rows"

_NO_TABLE = Refused("no-table", f"{NO_TABLE}, or send the events of a producer as they are")
_NOT_OBJECT = Refused("not-object", "the row is not a JSON object: send an object of columns for each row")


def recognises(event: object) -> bool:
    return isinstance(event, dict)


def read(events: Sequence[tuple[int, Any]], context: Context, parsed: Parsed) -> None:
    table, source = context.table, context.source or ""
    key = context.key if context.key is not None else ()
    for index, event in events:
        if event.__class__ is not dict:
            parsed.rejects.append(reject(index, event, _NOT_OBJECT, context))
        elif table is None:
            parsed.rejects.append(reject(index, event, _NO_TABLE, context))
        else:
            parsed.changes.append(Change(index, table, "insert", None, event, key, None, source))
