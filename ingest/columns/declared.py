"""What a change's producer declares about a column, as this room uses it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from operator import is_
from typing import Any

import orjson

from catalog.errors import Invalid
from catalog.metadata.types import Primitive, primitive
from ingest.change import Change, Declared
from ingest.columns.temporal import NS_PER


def distinct(changes: Sequence[Change]) -> tuple[list[Declared | None], list[int]]:
    """The different declarations, in order of appearance, and for each change which of them is its own.

    Changes of one table mostly share one, as an object or at least in what it says; so all that depends on it
    is worked out once.
    """
    all_ = [change.declared for change in changes]
    if all_ and all(map(is_, all_, repeat(all_[0]))):
        return all_[:1], [0] * len(all_)
    different: list[Declared | None] = []
    by_object: dict[int, int] = {}
    by_content: dict[bytes, int] = {}
    for object_id, declared in dict(zip(map(id, all_), all_, strict=True)).items():
        place = by_content.setdefault(_content(declared), len(different))
        if place == len(different):
            different.append(declared)
        by_object[object_id] = place
    return different, [by_object[id(declared)] for declared in all_]


def _content(declared: Declared | None) -> bytes:
    if declared is None:
        return b""
    return orjson.dumps([dict(declared.columns), dict(declared.encodings)], default=str)


def encoding_of(declared: Declared | None, column: str) -> str | None:
    """How the column's values stand in JSON, with what only the declared type tells.

    The scale of a base64 decimal is the producer's, not the table's; and a unit of a time of day is told from
    that of a timestamp, because a time is stored as text.
    """
    if declared is None:
        return None
    encoding = declared.encodings.get(column)
    read = _innermost(declared.columns.get(column))
    if read is None:
        return encoding
    if encoding == "decimal-base64" and read.kind == "decimal":
        return f"{encoding}:{read.scale}"
    if read.kind == "time" and (encoding is None or encoding in NS_PER):
        return "time" if encoding is None else f"time-{encoding}"
    return encoding


def _innermost(type_: Any) -> Primitive | None:
    """The type of a column's single values: in a list its elements, in a map its values."""
    while isinstance(type_, dict):
        type_ = type_.get("element", type_.get("value"))
    try:
        return primitive(type_) if isinstance(type_, str) else None
    except Invalid:  # the plan of the schema refuses the column with this very reason
        return None
