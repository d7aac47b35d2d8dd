"""The types of the table spec as text: which exist, since which format version, and what they carry.

`primitive("decimal(9,2)")` reads one type string; nested types (struct, list, map) are objects and are read
by `schemas.py`. `variant` is not a primitive in the spec's words, but is written as a string like them.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from catalog.errors import Invalid
from catalog.metadata.limits import INT_MAX, TYPE_TEXT_CHARS_MAX
from catalog.metadata.shapes import shown

VERSION_SINCE = {
    "timestamp_ns": 3,
    "timestamptz_ns": 3,
    "unknown": 3,
    "variant": 3,
    "geometry": 3,
    "geography": 3,
}
# The spec allows no default but null for these.
NULL_DEFAULT_ONLY = frozenset({"unknown", "variant", "geometry", "geography"})

_PLAIN = frozenset(
    {"boolean", "int", "long", "float", "double", "string", "uuid", "binary"}
    | {"date", "time", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"}
    | {"unknown", "variant", "geometry", "geography"}
)
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,9})\s*,\s*(\d{1,9})\s*\)")
_FIXED = re.compile(r"fixed\[\s*(\d{1,10})\s*\]")
_GEOMETRY = re.compile(r"geometry\s*\(\s*([^()]*?)\s*\)")
_GEOGRAPHY = re.compile(r"geography\s*\(\s*([^(),]*?)\s*(?:,\s*(\w*)\s*)?\)")
_EDGE_ALGORITHMS = frozenset({"spherical", "vincenty", "thomas", "andoyer", "karney"})
_DECIMAL_PRECISION_MAX = 38


class Primitive(NamedTuple):
    """One type string, read. `canonical` is equal for two ways to write the same type."""

    kind: str
    canonical: str
    precision: int = 0
    scale: int = 0
    length: int = 0

    @property
    def version_since(self) -> int:
        return VERSION_SINCE.get(self.kind, 1)


@lru_cache(maxsize=1024)
def primitive(text: str) -> Primitive:
    if text in _PLAIN:
        return Primitive(text, text)
    if len(text) > TYPE_TEXT_CHARS_MAX:
        raise Invalid(f"Cannot parse type string to primitive: longer than {TYPE_TEXT_CHARS_MAX} characters")
    for read in (_decimal, _fixed, _geometry, _geography):
        found = read(text)
        if found is not None:
            return found
    raise Invalid(f"Cannot parse type string to primitive: {shown(text)}")


def _decimal(text: str) -> Primitive | None:
    match = _DECIMAL.fullmatch(text)
    if match is None:
        return None
    precision, scale = int(match[1]), int(match[2])
    if precision > _DECIMAL_PRECISION_MAX:
        raise Invalid(
            f"Decimals with precision larger than {_DECIMAL_PRECISION_MAX} are not supported: {precision}"
        )
    if precision < 1 or scale > precision:
        raise Invalid(f"Invalid decimal({precision},{scale}): the scale must not exceed the precision")
    return Primitive("decimal", f"decimal({precision},{scale})", precision=precision, scale=scale)


def _fixed(text: str) -> Primitive | None:
    match = _FIXED.fullmatch(text)
    if match is None:
        return None
    length = int(match[1])
    if length > INT_MAX:
        raise Invalid(f"Invalid fixed[{length}]: the length must not exceed {INT_MAX}")
    return Primitive("fixed", f"fixed[{length}]", length=length)


def _geometry(text: str) -> Primitive | None:
    match = _GEOMETRY.fullmatch(text)
    return None if match is None else Primitive("geometry", f"geometry({match[1]})")


def _geography(text: str) -> Primitive | None:
    match = _GEOGRAPHY.fullmatch(text)
    if match is None:
        return None
    algorithm = match[2]
    if algorithm is None:
        return Primitive("geography", f"geography({match[1]})")
    if algorithm.lower() not in _EDGE_ALGORITHMS:
        raise Invalid(f"Invalid edge interpolation algorithm: {shown(algorithm)}")
    return Primitive("geography", f"geography({match[1]}, {algorithm.lower()})")
