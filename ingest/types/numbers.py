"""Convert numbers and bytes in JSON to exact Python values, and infer the type of an undeclared column."""

from __future__ import annotations

import binascii
import math
import re
import uuid
from collections.abc import Callable, Sequence
from decimal import Context, Decimal, DivisionByZero, Inexact, InvalidOperation, Overflow
from typing import Any

from ingest.types.errors import ConversionError
from ingest.types.iceberg import DECIMAL_DIGITS_MAX, IcebergType

LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1

_DECIMAL_END = 10**DECIMAL_DIGITS_MAX
_NUMBERS = frozenset({int, float, Decimal})
_NULL = type(None)


def infer_type(values: Sequence[Any]) -> IcebergType | None:
    """Return the Iceberg type of the values, or None if all are null."""
    kinds = set(map(type, values)) - {_NULL}
    if not kinds:
        return None
    first = next(iter(kinds)) if len(kinds) == 1 else type(next(v for v in values if v is not None))
    if first is bool:
        return "boolean"
    if kinds == {list}:
        return _list_type([item for value in values if value is not None for item in value])
    if first not in _NUMBERS:
        return "string"
    if kinds & {float, Decimal}:
        return "double"
    return _whole_type([value for value in values if type(value) is int])


def _list_type(elements: Sequence[Any]) -> IcebergType:
    """Return a list of the common element type; JSON text if there are several types, or none."""
    kinds = set(map(type, elements)) - {_NULL}
    if kinds in ({bool}, {str}) or (kinds and kinds <= _NUMBERS):
        return {"type": "list", "element": infer_type(elements), "element-required": False}
    return "string"


def _whole_type(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    if low >= LONG_MIN and high <= LONG_MAX:
        return "long"
    if low > -_DECIMAL_END and high < _DECIMAL_END:
        return f"decimal({DECIMAL_DIGITS_MAX},0)"
    return "string"


# -- bytes

_URL_SAFE = str.maketrans("-_", "+/")
_UUID = re.compile(r"\{?[0-9a-fA-F]{8}(-?)[0-9a-fA-F]{4}\1[0-9a-fA-F]{4}\1[0-9a-fA-F]{4}\1[0-9a-fA-F]{12}\}?")


def base64_bytes(text: str, *, padded: bool = False) -> bytes:
    """Return the bytes; the URL-safe alphabet is accepted too. `padded` requires the padding that many
    producers omit.
    """
    text = text.translate(_URL_SAFE)
    if not padded:
        text += "=" * (-len(text) % 4)
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError as wrong:
        raise ConversionError("not base64") from wrong


def hex_bytes(text: str) -> bytes:
    try:
        return binascii.unhexlify(text.removeprefix("\\x").removeprefix("0x"))
    except ValueError as wrong:
        raise ConversionError("not hexadecimal") from wrong


def bits(text: str) -> int:
    """Return the number of a bit string, which is sent with its lowest byte first."""
    return int.from_bytes(base64_bytes(text), "little")


def binary(value: Any, encoding: str | None, length: int | None) -> bytes:
    """Convert to `binary`, or to `fixed` with its length. Bits are stored highest byte first."""
    if type(value) is dict and type(value.get("wkb")) is str:
        value = value["wkb"]  # a point or geometry: the binary contains the rest of the struct
    if type(value) is not str:
        raise ConversionError("not bytes as text")
    if encoding == "hex" or value.startswith("\\x"):
        data = hex_bytes(value)
    elif encoding == "bits-base64":
        data = base64_bytes(value)[::-1]
    else:
        data = base64_bytes(value)
    if length is not None and len(data) != length:
        raise ConversionError(f"{len(data)} bytes, not {length}")
    return data


def uuid_text(value: Any, encoding: str | None) -> str:
    """Convert to `uuid`, in its canonical text form."""
    if type(value) is str and _UUID.fullmatch(value):
        return str(uuid.UUID(value))
    if type(value) is str and encoding == "base64" and len(data := base64_bytes(value)) == 16:
        return str(uuid.UUID(bytes=data))
    raise ConversionError("not a uuid")


# -- numbers

FLOAT_MAX = 3.4028234663852886e38
SCALE_MAX = 16_384  # as in PostgreSQL; also limits the text of a number that is sent with its scale
UNSCALED_BYTES_MAX = 16_384  # the time to convert bytes to digits grows with the square of their number

_BITS = {"int": 32, "long": 64}
_DIGITS = re.compile(r"[+-]?\d{1,40}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,6})?", re.ASCII)
_NUMBER_CHARS_MAX = 400
_NOT_FINITE = {"nan": math.nan, "infinity": math.inf, "inf": math.inf}
_TRUE, _FALSE = frozenset({"true", "t", "1"}), frozenset({"false", "f", "0"})
_EXACT = Context(prec=DECIMAL_DIGITS_MAX, traps=[Inexact, InvalidOperation, Overflow, DivisionByZero])


def boolean(value: Any, encoding: str | None) -> bool:
    if isinstance(value, str):
        if encoding == "bits-base64":
            value = bits(value)
        else:
            word = value.strip().lower()
            if word in _TRUE or word in _FALSE:
                return word in _TRUE
            raise ConversionError("not true or false")
    if type(value) is bool or (type(value) is int and value in (0, 1)):
        return bool(value)
    raise ConversionError("not true or false")


def whole(value: Any, kind: str, encoding: str | None) -> int:
    """Convert to `int` or `long`."""
    number = value if type(value) is int else _to_whole(value, encoding)
    end = 1 << (_BITS[kind] - 1)
    if not -end <= number < end:
        raise ConversionError("out of range")
    return number


def _to_whole(value: Any, encoding: str | None) -> int:
    if type(value) is str and encoding == "bits-base64":
        return bits(value)
    if type(value) is str and encoding is None and _DIGITS.fullmatch(value):
        return int(value)
    number = value if type(value) is float else to_decimal(value, encoding, 0)
    if not math.isfinite(number):
        raise ConversionError("not a finite number")
    if type(number) is Decimal and number.adjusted() > DECIMAL_DIGITS_MAX:
        raise ConversionError("out of range")
    if number != int(number):
        raise ConversionError("not a whole number")
    return int(number)


def floating(value: Any, kind: str, encoding: str | None) -> float:
    """Convert to `float` or `double`."""
    if type(value) is str and (special := _not_finite(value)) is not None:
        return special
    if type(value) is float:
        number = value
    else:
        exact = value if type(value) is int else to_decimal(value, encoding, 0)
        try:
            number = float(exact)
        except OverflowError as large:
            raise ConversionError("out of range") from large
        if math.isinf(number):
            raise ConversionError("out of range")
    if kind == "float" and math.isfinite(number) and abs(number) > FLOAT_MAX:
        raise ConversionError("out of range")
    return number


def _not_finite(text: str) -> float | None:
    word = text.strip().lower()
    sign = -1.0 if word.startswith("-") else 1.0
    found = _NOT_FINITE.get(word.removeprefix("-").removeprefix("+"))
    return None if found is None else sign * found


def decimal(value: Any, precision: int, scale: int, encoding: str | None) -> Decimal:
    """Convert to `decimal(precision,scale)`."""
    try:
        number = to_decimal(value, encoding, scale)
    except ConversionError:
        if encoding is not None or type(value) is not str:
            raise
        # Producers without a schema also write decimals as base64.
        number = _unscaled(value, scale)
    if not number.is_finite():
        raise ConversionError("not a finite number")
    try:
        fitted = _EXACT.quantize(number, Decimal(1).scaleb(-scale))
    except Inexact as loss:
        raise ConversionError(f"it has more than {scale} digits after the point") from loss
    except InvalidOperation as large:
        raise ConversionError("out of range") from large
    if fitted and fitted.adjusted() >= precision - scale:
        raise ConversionError("out of range")
    return fitted


def to_decimal(value: Any, encoding: str | None, scale: int) -> Decimal:
    """Return the number exactly as it was written. `scale` is that of the column, for base64 without one."""
    kind = type(value)
    if kind is int or kind is Decimal:
        return Decimal(value)
    if kind is float:
        return Decimal(repr(value))  # the shortest text of this number
    if kind is dict and value.keys() >= {"scale", "value"}:
        return _unscaled(value["value"], value["scale"])
    if kind is not str:
        raise ConversionError("not a number")
    name, _, given = (encoding or "").partition(":")
    if name == "decimal-base64":
        return _unscaled(value, int(given) if given else scale)
    text = value.strip()
    if len(text) <= _NUMBER_CHARS_MAX and _NUMBER.fullmatch(text):
        return Decimal(text)
    raise ConversionError("not a number")


def _unscaled(text: Any, scale: Any) -> Decimal:
    if type(text) is not str or type(scale) is not int or abs(scale) > SCALE_MAX:
        raise ConversionError("not a number in base64 with its scale")
    data = base64_bytes(text, padded=True)
    if not 0 < len(data) <= UNSCALED_BYTES_MAX:
        raise ConversionError("not a number of a size that can be read")
    number = Decimal(int.from_bytes(data, "big", signed=True))
    sign, digits, _ = number.as_tuple()
    return Decimal((sign, digits, -scale))


def plain(number: Decimal) -> str:
    """Return the digits without an exponent."""
    if number.is_finite() and number.adjusted() > UNSCALED_BYTES_MAX * 3:
        raise ConversionError("too large")
    return format(number, "f")


def converter(kind: str, encoding: str | None) -> Callable[[Any], bool | int | float]:
    """Return the conversion for a target of this kind, except decimals."""
    if kind == "boolean":
        return lambda value: boolean(value, encoding)
    if kind in _BITS:
        return lambda value: whole(value, kind, encoding)
    return lambda value: floating(value, kind, encoding)
