"""What a change's producer declares about a column, as this room uses it."""

from __future__ import annotations

from typing import Any

from catalog.errors import Invalid
from catalog.metadata.types import primitive
from ingest.change import Declared
from ingest.columns.temporal import NS_PER


def encoding_of(declared: Declared | None, column: str) -> str | None:
    """How the column's values stand in JSON, with what only the declared type tells.

    The scale of a base64 decimal is the producer's, not the table's; and a unit of a time of day is told from
    that of a timestamp, because a time is stored as text.
    """
    if declared is None:
        return None
    encoding = declared.encodings.get(column)
    type_: Any = declared.columns.get(column)
    if not isinstance(type_, str):
        return encoding
    if encoding == "decimal-base64":
        scale = _scale(type_)
        return encoding if scale is None else f"{encoding}:{scale}"
    if type_ == "time" and (encoding is None or encoding in NS_PER):
        return "time" if encoding is None else f"time-{encoding}"
    return encoding


def _scale(type_: str) -> int | None:
    try:
        read = primitive(type_)
    except Invalid:  # the plan of the schema refuses the column with this very reason
        return None
    return read.scale if read.kind == "decimal" else None
