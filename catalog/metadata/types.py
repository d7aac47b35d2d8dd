"""Types, default values and transforms of schemas, specs and sort orders."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, NamedTuple

from catalog.errors import Invalid
from catalog.metadata.validation import INT_MAX, LONG_MAX, TYPE_TEXT_CHARS_MAX, preview

VERSION_SINCE = {
    "timestamp_ns": 3,
    "timestamptz_ns": 3,
    "unknown": 3,
    "variant": 3,
    "geometry": 3,
    "geography": 3,
}
# The spec allows only null as the default of these types.
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
_FLOAT_MAX = 3.4028234663852886e38
_DATE = r"(\d{4})-(\d{2})-(\d{2})"
_TIME = r"(\d{2}):(\d{2})(?::(\d{2})(?:\.\d{1,9})?)?"
_DATE_ONLY = re.compile(_DATE, re.ASCII)
_TIME_ONLY = re.compile(_TIME, re.ASCII)
_TIMESTAMP = re.compile(f"{_DATE}T{_TIME}", re.ASCII)
_TIMESTAMPTZ = re.compile(rf"{_DATE}T{_TIME}\+00:00", re.ASCII)
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_HEX = re.compile(r"([0-9a-fA-F]{2})*")
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


class Primitive(NamedTuple):
    """A parsed type string. `canonical` is equal for two spellings of the same type."""

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
    raise Invalid(f"Cannot parse type string to primitive: {preview(text)}")


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
        raise Invalid(f"Invalid edge interpolation algorithm: {preview(algorithm)}")
    return Primitive("geography", f"geography({match[1]}, {algorithm.lower()})")


def check_default(type_: Any, value: Any, at: str) -> None:
    if value is None:
        return
    if isinstance(type_, str):
        read = primitive(type_)
        if read.kind in NULL_DEFAULT_ONLY:
            raise Invalid(f"Invalid default value for {type_} at {at}: {preview(value)} (must be null)")
        if not _CHECKS[read.kind](read, value):
            raise Invalid(f"Cannot parse default as a {type_} value at {at}: {preview(value)}")
    else:
        _check_nested(type_, value, at)


def _check_nested(type_: dict[str, Any], value: Any, at: str) -> None:
    kind = type_["type"]
    if kind == "struct":
        # Defaults of a struct's fields are stored at those fields, never inside the default of the struct.
        if value != {} or not isinstance(value, dict):
            raise Invalid(
                f"Invalid default value for a struct at {at}: {preview(value)} (must be null or {{}})"
            )
    elif kind == "list":
        if not isinstance(value, list):
            raise Invalid(f"Cannot parse default as a list value at {at}: {preview(value)}")
        for item in value:
            check_default(type_["element"], item, at)
    else:
        _check_map(type_, value, at)


def _check_map(type_: dict[str, Any], value: Any, at: str) -> None:
    keys = value.get("keys") if isinstance(value, dict) else None
    values = value.get("values") if isinstance(value, dict) else None
    if not isinstance(keys, list) or not isinstance(values, list) or len(keys) != len(values):
        raise Invalid(f"Cannot parse default as a map value at {at}: {preview(value)}")
    for key in keys:
        check_default(type_["key"], key, at)
    for item in values:
        check_default(type_["value"], item, at)


def _is_integer(value: Any, high: int) -> bool:
    return type(value) is int and -high - 1 <= value <= high


def _is_float(value: Any, high: float) -> bool:
    # Java reads a default of these types only if it is written with a fraction: 1.0, not 1.
    return isinstance(value, float) and math.isfinite(value) and abs(value) <= high


def _is_decimal(type_: Primitive, value: Any) -> bool:
    if not isinstance(value, str) or not value.isascii() or "_" in value or value != value.strip():
        return False
    try:
        _, digits, exponent = Decimal(value).as_tuple()
    except (InvalidOperation, ValueError):
        return False
    return isinstance(exponent, int) and exponent == -type_.scale and len(digits) <= type_.precision


def _is_calendar(pattern: re.Pattern[str], value: Any, *, dated: bool, timed: bool) -> bool:
    match = pattern.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return False
    parts = [int(part or 0) for part in match.groups()]
    try:
        if dated:
            datetime.date(parts[0], parts[1], parts[2])
        if timed:
            datetime.time(parts[-3], parts[-2], parts[-1])
    except ValueError:
        return False
    return True


def _is_hex(value: Any, length: int | None) -> bool:
    if not isinstance(value, str) or _HEX.fullmatch(value) is None:
        return False
    return length is None or len(value) == 2 * length


def _is_timestamp(type_: Primitive, value: Any) -> bool:
    return _is_calendar(_TIMESTAMP, value, dated=True, timed=True)


def _is_timestamptz(type_: Primitive, value: Any) -> bool:
    return _is_calendar(_TIMESTAMPTZ, value, dated=True, timed=True)


_CHECKS: dict[str, Callable[[Primitive, Any], bool]] = {
    "boolean": lambda type_, value: isinstance(value, bool),
    "int": lambda type_, value: _is_integer(value, INT_MAX),
    "long": lambda type_, value: _is_integer(value, LONG_MAX),
    "float": lambda type_, value: _is_float(value, _FLOAT_MAX),
    "double": lambda type_, value: _is_float(value, math.inf),
    "decimal": _is_decimal,
    "date": lambda type_, value: _is_calendar(_DATE_ONLY, value, dated=True, timed=False),
    "time": lambda type_, value: _is_calendar(_TIME_ONLY, value, dated=False, timed=True),
    "timestamp": _is_timestamp,
    "timestamp_ns": _is_timestamp,
    "timestamptz": _is_timestamptz,
    "timestamptz_ns": _is_timestamptz,
    "string": lambda type_, value: isinstance(value, str),
    "uuid": lambda type_, value: isinstance(value, str) and _UUID.fullmatch(value) is not None,
    "fixed": lambda type_, value: _is_hex(value, type_.length),
    "binary": lambda type_, value: _is_hex(value, None),
}


@lru_cache(maxsize=1024)
def canonical_transform(text: str) -> str:
    """The canonical spelling of a known transform; unknown ones are returned unchanged."""
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


def transform_accepts(text: str, kind: str) -> bool:
    """Whether the transform can be applied to a column of this kind of type."""
    name = canonical_transform(text).partition("[")[0]
    if name == "identity":
        return kind not in _NOT_IDENTITY
    accepted = _ACCEPTED.get(name)
    return accepted is None or kind in accepted
