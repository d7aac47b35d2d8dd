"""Default values of columns, in the spec's JSON single-value form (appendix D of the table spec).

`check(type, value, at)` raises `Invalid` unless the value can be read back as that type. Null is always a
default: it means that there is none.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

from catalog.errors import Invalid
from catalog.metadata.limits import INT_MAX, LONG_MAX
from catalog.metadata.shapes import shown
from catalog.metadata.types import NULL_DEFAULT_ONLY, Primitive, primitive

_FLOAT_MAX = 3.4028234663852886e38
_DATE = r"(\d{4})-(\d{2})-(\d{2})"
_TIME = r"(\d{2}):(\d{2})(?::(\d{2})(?:\.\d{1,9})?)?"
_DATE_ONLY = re.compile(_DATE, re.ASCII)
_TIME_ONLY = re.compile(_TIME, re.ASCII)
_TIMESTAMP = re.compile(f"{_DATE}T{_TIME}", re.ASCII)
_TIMESTAMPTZ = re.compile(rf"{_DATE}T{_TIME}\+00:00", re.ASCII)
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_HEX = re.compile(r"([0-9a-fA-F]{2})*")


def check(type_: Any, value: Any, at: str) -> None:
    if value is None:
        return
    if isinstance(type_, str):
        read = primitive(type_)
        if read.kind in NULL_DEFAULT_ONLY:
            raise Invalid(f"Invalid default value for {type_} at {at}: {shown(value)} (must be null)")
        if not _CHECKS[read.kind](read, value):
            raise Invalid(f"Cannot parse default as a {type_} value at {at}: {shown(value)}")
    else:
        _check_nested(type_, value, at)


def _check_nested(type_: dict[str, Any], value: Any, at: str) -> None:
    kind = type_["type"]
    if kind == "struct":
        # The defaults of a struct's fields are kept at those fields, never inside the struct's own default.
        if value != {} or not isinstance(value, dict):
            raise Invalid(
                f"Invalid default value for a struct at {at}: {shown(value)} (must be null or {{}})"
            )
    elif kind == "list":
        if not isinstance(value, list):
            raise Invalid(f"Cannot parse default as a list value at {at}: {shown(value)}")
        for item in value:
            check(type_["element"], item, at)
    else:
        _check_map(type_, value, at)


def _check_map(type_: dict[str, Any], value: Any, at: str) -> None:
    keys = value.get("keys") if isinstance(value, dict) else None
    values = value.get("values") if isinstance(value, dict) else None
    if not isinstance(keys, list) or not isinstance(values, list) or len(keys) != len(values):
        raise Invalid(f"Cannot parse default as a map value at {at}: {shown(value)}")
    for key in keys:
        check(type_["key"], key, at)
    for item in values:
        check(type_["value"], item, at)


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
