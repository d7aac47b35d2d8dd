"""Convert a column of JSON values to an Arrow array of its Iceberg type, and report the values that do not
fit.

Values that already have the right form are passed to Arrow in one step, unless Arrow could convert them
differently from `values.py`. Everything else is converted one by one.
"""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Callable
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from catalog.metadata.types import primitive
from ingest.types.dates import LONG_END, US_PER_DAY
from ingest.types.errors import RejectedValue
from ingest.types.iceberg import DECIMAL_DIGITS_MAX, IcebergType, arrow_type
from ingest.types.values import REFUSALS, converter, why

_NULL = type(None)
_LONG_DIGITS = 19
_STR, _INT, _FLOAT, _BOOL = {str}, {int}, {float}, {bool}
_TEXT_ENCODINGS = (None, "json")
# Values beyond these may be sentinels for infinity, which the slow path handles.
_PLAIN_INSTANT_END = LONG_END // 2_000
_PLAIN_DAYS_END = 10_000_000
_WHOLE_TEXT = "^-?[0-9]{1,18}$"
_NUMBER_TEXT = r"^-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
_CANONICAL_UUID = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
_DATE_TEXT = "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_INSTANT_TEXT = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?(Z|[+-][01][0-9](:?[0-9]{2})?)?)?$"
)

Quick: TypeAlias = Any  # an Arrow array, or None


def column_array(
    values: list[Any], iceberg_type: IcebergType, encoding: str | None = None, *, name: str = ""
) -> tuple[pa.Array, dict[int, str]]:
    """Return the array, null where a value did not fit, and the reason of each such value by row number."""
    kinds = set(map(type, values)) - {_NULL}
    if not kinds:
        return pa.nulls(len(values), arrow_type(iceberg_type)), {}
    quick = _quick(values, kinds, iceberg_type, encoding)
    if quick is not None:
        return quick, {}
    return _one_by_one(values, iceberg_type, encoding, name)


def _one_by_one(
    values: list[Any], iceberg_type: IcebergType, encoding: str | None, name: str
) -> tuple[pa.Array, dict[int, str]]:
    convert = converter(iceberg_type, encoding)
    converted: list[Any] = []
    unfit: dict[int, str] = {}
    for row, value in enumerate(values):
        if value is None:
            converted.append(None)
            continue
        try:
            converted.append(convert(value))
        except REFUSALS as refused:
            converted.append(None)
            unfit[row] = str(RejectedValue(name, value, iceberg_type, why(refused)))
    return pa.array(converted, arrow_type(iceberg_type)), unfit


def _quick(values: list[Any], kinds: set[type], type_: IcebergType, encoding: str | None) -> Quick:
    """Return the whole array at once, or None if that would not be exact."""
    if not isinstance(type_, str):
        return None
    read = primitive(type_)
    wanted = arrow_type(type_)
    try:
        if read.kind in _WAYS:
            return _WAYS[read.kind](values, kinds, wanted, encoding)
        if kinds == _STR and read.kind in ("timestamp", "timestamptz"):
            return _iso_text(values, wanted)
        if kinds == _INT and read.kind in ("timestamp", "timestamptz"):
            return _instants(values, wanted, encoding)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError):
        return None  # at least one value must be converted by itself
    return None


def _boolean(values: list[Any], kinds: set[type], wanted: pa.DataType, _: str | None) -> Quick:
    return pa.array(values, wanted) if kinds == _BOOL else None


def _whole(values: list[Any], kinds: set[type], wanted: pa.DataType, encoding: str | None) -> Quick:
    if kinds == _INT:
        return pa.array(values, wanted)
    return _cast_text(values, _WHOLE_TEXT, wanted) if kinds == _STR and encoding is None else None


def _double(values: list[Any], kinds: set[type], wanted: pa.DataType, encoding: str | None) -> Quick:
    if kinds <= {int, float}:
        # Arrow refuses integers that a double does not hold exactly; they take the slow path.
        return pa.array(values, wanted)
    return _finite(_cast_text(values, _NUMBER_TEXT, wanted)) if kinds == _STR and encoding is None else None


def _float(values: list[Any], kinds: set[type], wanted: pa.DataType, _: str | None) -> Quick:
    return _finite(pa.array(values, wanted)) if kinds == _FLOAT else None


def _finite(numbers: Quick) -> Quick:
    """Refuse infinity, which Arrow returns for numbers that are too large."""
    return None if numbers is None or pc.any(pc.is_inf(numbers)).as_py() else numbers


def _string(values: list[Any], kinds: set[type], wanted: pa.DataType, encoding: str | None) -> Quick:
    return pa.array(values, wanted) if kinds == _STR and encoding in _TEXT_ENCODINGS else None


def _uuid(values: list[Any], kinds: set[type], wanted: pa.DataType, _: str | None) -> Quick:
    if kinds != _STR:
        return None
    texts = pc.utf8_lower(pa.array(values, wanted))
    return texts if pc.all(pc.match_substring_regex(texts, _CANONICAL_UUID)).as_py() else None


def _binary(values: list[Any], kinds: set[type], wanted: pa.DataType, encoding: str | None) -> Quick:
    if kinds != _STR or encoding not in (None, "base64"):
        return None
    data = [None if value is None else a2b_base64(value, strict_mode=True) for value in values]
    return pa.array(data, wanted)


def _decimal(values: list[Any], kinds: set[type], wanted: pa.DataType, encoding: str | None) -> Quick:
    if kinds == _INT and wanted.scale + _LONG_DIGITS <= DECIMAL_DIGITS_MAX:
        wide = pa.decimal128(wanted.scale + _LONG_DIGITS, wanted.scale)
        return pa.array(values, pa.int64()).cast(wide).cast(wanted)
    if kinds <= {int, float}:
        return _decimal_text([None if value is None else repr(value) for value in values], wanted)
    if kinds == _STR and encoding is None:
        return _decimal_text(values, wanted)
    if kinds == _STR and encoding in ("decimal-base64", f"decimal-base64:{wanted.scale}"):
        return _unscaled(values, wanted)
    return None


def _decimal_text(texts: list[str | None], wanted: pa.DataType) -> Quick:
    """Convert only texts with at most 38 digits at the column's scale: Arrow overflows without an error."""
    digits = DECIMAL_DIGITS_MAX - wanted.scale
    if not digits:
        return None
    fraction = rf"(\.[0-9]{{1,{wanted.scale}}})?" if wanted.scale else ""
    return _cast_text(texts, f"^-?[0-9]{{1,{digits}}}{fraction}$", wanted)


def _unscaled(values: list[Any], wanted: pa.DataType) -> Quick:
    numbers = [
        None if value is None else int.from_bytes(a2b_base64(value, strict_mode=True), "big", signed=True)
        for value in values
    ]
    if "" in values:
        return None
    whole = pa.array(numbers, pa.int64()).cast(pa.decimal128(_LONG_DIGITS, 0))
    if not _within(whole, 1 - 10**wanted.precision, 10**wanted.precision):
        return None
    # The same 16 bytes, with the column's scale.
    return pa.Array.from_buffers(wanted, len(whole), whole.buffers(), whole.null_count)


def _date(values: list[Any], kinds: set[type], wanted: pa.DataType, encoding: str | None) -> Quick:
    if kinds == _STR:
        return _cast_text(values, _DATE_TEXT, wanted) if encoding is None else None
    if kinds != _INT or encoding not in (None, "days"):
        return None
    days = pa.array(values, pa.int32())
    return days.cast(wanted) if _within(days, -_PLAIN_DAYS_END, _PLAIN_DAYS_END) else None


def _time(values: list[Any], kinds: set[type], wanted: pa.DataType, encoding: str | None) -> Quick:
    if kinds != _INT or encoding not in ("us", "time-us"):
        return None
    clock = pa.array(values, pa.int64())
    return clock.cast(wanted) if _within(clock, 0, US_PER_DAY) else None


def _instants(values: list[Any], wanted: pa.DataType, encoding: str | None) -> Quick:
    if encoding not in ("ms", "us", "ns"):
        return None
    numbers = pa.array(values, pa.int64())
    # Arrow rounds nanoseconds towards zero, which is only right after 1970.
    low = 0 if encoding == "ns" else -_PLAIN_INSTANT_END
    if not _within(numbers, low, LONG_END // 2 if encoding == "ns" else _PLAIN_INSTANT_END):
        return None
    return numbers.cast(pa.timestamp(encoding, tz=wanted.tz)).cast(wanted, safe=encoding != "ns")


def _iso_text(values: list[Any], wanted: pa.DataType) -> Quick:
    """Convert ISO texts. Arrow requires a zone in all texts or in none, by the type; the meaning is the same
    here.
    """
    other_zone = pa.timestamp(wanted.unit, tz=None if wanted.tz else "UTC")
    try:
        return _cast_text(values, _INSTANT_TEXT, wanted)
    except pa.ArrowInvalid:
        other = _cast_text(values, _INSTANT_TEXT, other_zone)
        return None if other is None else other.cast(pa.int64()).cast(wanted)


def _cast_text(values: list[Any], pattern: str, wanted: pa.DataType) -> Quick:
    """Convert only texts of this pattern: Arrow itself also accepts hexadecimal numbers and more."""
    texts = pa.array(values, pa.string())
    return texts.cast(wanted) if pc.all(pc.match_substring_regex(texts, pattern)).as_py() else None


def _within(numbers: pa.Array, low: int, end: int) -> bool:
    ends = pc.min_max(numbers).as_py()
    return bool(low <= ends["min"] and ends["max"] < end)


_WAYS: dict[str, Callable[[list[Any], set[type], pa.DataType, str | None], Quick]] = {
    "boolean": _boolean,
    "int": _whole,
    "long": _whole,
    "float": _float,
    "double": _double,
    "string": _string,
    "uuid": _uuid,
    "binary": _binary,
    "decimal": _decimal,
    "date": _date,
    "time": _time,
}
