"""Convert one JSON value to a value of an Iceberg type, or write it as JSON text."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import orjson

from catalog.metadata.types import primitive
from ingest.types import dates, numbers
from ingest.types.errors import ConversionError, RejectedValue
from ingest.types.iceberg import IcebergType
from ingest.types.numbers import LONG_MAX, LONG_MIN


def json_text(value: Any) -> str:
    """Return compact JSON in which numbers keep all their digits. `Misfit` if it is not Unicode, or far too
    deep.
    """
    try:
        return orjson.dumps(value, default=_digits).decode()
    except TypeError:  # for example an integer beyond 64 bits, which orjson can only write as a fragment
        pass
    try:
        return orjson.dumps(_shown_large(value), default=_digits).decode()
    except (TypeError, ValueError, RecursionError) as broken:
        raise ConversionError(
            "it cannot be written as JSON: it is not valid Unicode, or too deep, or too large"
        ) from broken


def json_texts(values: Sequence[Any]) -> list[str | None] | None:
    """Return `json_text` of all that are not None; None if one of them must be written by itself."""
    try:
        return [None if value is None else orjson.dumps(value, default=_digits).decode() for value in values]
    except TypeError:
        return None


def _digits(value: Any) -> Any:
    if isinstance(value, Decimal) and value.is_finite():
        return orjson.Fragment(str(value))
    raise TypeError(f"not JSON: {type(value).__name__}")


def _shown_large(value: Any) -> Any:
    """Return the value with each integer beyond 64 bits as a fragment."""
    if isinstance(value, dict):
        return {name: _shown_large(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_shown_large(item) for item in value]
    if type(value) is int and not LONG_MIN <= value <= LONG_MAX:
        return orjson.Fragment(str(value))
    return value


# -- single values

Conversion = Callable[[Any], Any]

# The errors that a conversion may raise for a value of the wrong type.
REFUSALS = (ConversionError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError)

_NUMERIC = frozenset({"boolean", "int", "long", "float", "double"})
_TEMPORAL = frozenset({"date", "time", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"})


def convert(column: str, value: Any, type_: IcebergType, encoding: str | None = None) -> Any:
    """Return the value for the column; `Unfit` if it does not fit."""
    if value is None:
        return None
    try:
        return converter(type_, encoding)(value)
    except REFUSALS as refused:
        raise RejectedValue(column, value, type_, why(refused)) from refused


def why(refused: BaseException) -> str:
    """Return the reason, if the conversion gives one."""
    return str(refused) if isinstance(refused, ConversionError) else "it cannot be converted"


def converter(type_: IcebergType, encoding: str | None = None) -> Conversion:
    """Return the conversion of values other than null."""
    if not isinstance(type_, str):
        return _nested(type_, encoding)
    read = primitive(type_)
    if read.kind in _NUMERIC:
        return numbers.converter(read.kind, encoding)
    if read.kind in _TEMPORAL:
        return dates.converter(read.kind, _unit(encoding))
    if read.kind == "decimal":
        precision, scale = read.precision, read.scale
        return lambda value: numbers.decimal(value, precision, scale, encoding)
    if read.kind == "uuid":
        return lambda value: numbers.uuid_text(value, encoding)
    if read.kind in ("binary", "fixed"):
        length = read.length if read.kind == "fixed" else None
        return lambda value: numbers.binary(value, encoding, length)
    if read.kind == "string":
        return _text(encoding)
    raise ConversionError(f"columns of type {type_} cannot be written")


def _unit(encoding: str | None) -> str | None:
    unit = (encoding or "").removeprefix("time-")
    return unit if unit in dates.NS_PER else None


def _text(encoding: str | None) -> Conversion:
    """Return the conversion to `string`: text as it is, everything else as JSON; encoded numbers as plain
    digits.
    """
    name = (encoding or "").partition(":")[0]
    if name in ("decimal-base64", "decimal-struct"):
        return lambda value: numbers.plain(numbers.to_decimal(value, encoding, 0))
    if name == "bits-base64":
        return lambda value: f"{numbers.bits(value):b}" if isinstance(value, str) else _plain_text(value)
    if name == "time" or name.startswith("time-"):
        unit = _unit(encoding)
        return lambda value: _plain_text(dates.clock_text(value, unit))
    if name in dates.NS_PER:
        return lambda value: dates.iso_text(value, name) if type(value) is int else _plain_text(value)
    return _plain_text


def _plain_text(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        raise ConversionError("not a number that JSON knows")
    if not isinstance(value, str):
        return json_text(value)
    try:
        value.encode()
    except UnicodeEncodeError as broken:
        raise ConversionError("it is not valid Unicode") from broken
    return value


def _nested(type_: dict[str, Any], encoding: str | None) -> Conversion:
    if type_["type"] == "struct":
        convert_value = _struct(type_["fields"])
    elif type_["type"] == "list":
        convert_value = _list(_part(type_, "element", encoding))
    else:
        convert_value = _map(converter(type_["key"]), _part(type_, "value", encoding))

    def from_json(value: Any) -> Any:
        """Convert objects and arrays that some producers write as JSON text."""
        if isinstance(value, str):
            try:
                value = orjson.loads(value)
            except orjson.JSONDecodeError as wrong:
                raise ConversionError("not JSON") from wrong
        return convert_value(value)

    return from_json


def _part(type_: dict[str, Any], part: str, encoding: str | None) -> Conversion:
    """Convert elements of a list and values of a map; null is allowed, unless the table forbids it."""
    inner = converter(type_[part], encoding)
    return _nullable(inner, part, required=bool(type_.get(f"{part}-required")))


def _nullable(inner: Conversion, name: str, *, required: bool) -> Conversion:
    def outer(value: Any) -> Any:
        found = None if value is None else inner(value)
        if found is None and required:
            raise ConversionError(f"{name} must not be null")
        return found

    return outer


def _struct(fields: list[dict[str, Any]]) -> Conversion:
    conversions = {
        field["name"]: _nullable(
            converter(field["type"]), field["name"], required=bool(field.get("required"))
        )
        for field in fields
    }

    def convert_value(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ConversionError("not an object")
        unknown = [name for name in value if name not in conversions]
        if unknown:
            raise ConversionError(f'it has a field "{unknown[0]}" that the struct lacks')
        return {name: inner(value.get(name)) for name, inner in conversions.items()}

    return convert_value


def _list(element: Conversion) -> Conversion:
    def convert_value(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise ConversionError("not an array")
        return [element(item) for item in value]

    return convert_value


def _map(key: Conversion, inner: Conversion) -> Conversion:
    """Convert an object, or an array of pairs if the keys are not text."""

    def convert_value(value: Any) -> list[tuple[Any, Any]]:
        pairs = list(value.items()) if isinstance(value, dict) else value
        if not isinstance(pairs, list) or not all(
            isinstance(pair, (list, tuple)) and len(pair) == 2 and pair[0] is not None for pair in pairs
        ):
            raise ConversionError("not an object, nor an array of pairs")
        return [(key(name), inner(item)) for name, item in pairs]

    return convert_value
