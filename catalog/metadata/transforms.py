"""Partition and sort transforms as text. Unknown ones are kept, and allowed on any primitive type."""

from __future__ import annotations

import re
from functools import lru_cache

from catalog.errors import Invalid
from catalog.metadata.limits import INT_MAX

VOID = "void"

_WITH_WIDTH = re.compile(r"(bucket|truncate)\[(\d{1,10})\]", re.IGNORECASE | re.ASCII)
_TIMESTAMPS = frozenset({"timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"})
_DATES = _TIMESTAMPS | {"date"}
_ACCEPTED = {
    "year": _DATES,
    "month": _DATES,
    "day": _DATES,
    "hour": _TIMESTAMPS,
    "bucket": _DATES | {"int", "long", "decimal", "time", "string", "uuid", "fixed", "binary"},
    "truncate": frozenset({"int", "long", "decimal", "string", "binary"}),
}
_NOT_IDENTITY = frozenset({"variant", "geometry", "geography"})


@lru_cache(maxsize=1024)
def canonical(text: str) -> str:
    """One spelling for each known transform; the others exactly as they are."""
    lowered = text.lower()
    if lowered in ("identity", VOID, "year", "month", "day", "hour"):
        return lowered
    match = _WITH_WIDTH.fullmatch(text)
    if match is None:
        return text
    width = int(match[2])
    if not 0 < width <= INT_MAX:
        raise Invalid(f"Invalid transform {lowered}: the number must be from 1 to {INT_MAX}")
    return f"{match[1].lower()}[{width}]"


def accepts(text: str, kind: str) -> bool:
    """Whether the transform can be applied to a column of this kind of type."""
    name = canonical(text).partition("[")[0]
    if name == "identity":
        return kind not in _NOT_IDENTITY
    accepted = _ACCEPTED.get(name)
    return accepted is None or kind in accepted
