"""Booleans and numbers: whatever a producer writes -> a Python value that fits the column exactly.

Whole numbers and decimals are never rounded: what would lose a digit is refused. Floating point takes the
nearest number, as the producer's own text already was one. A boolean is not a number. Text is read as a
number, because some producers write every value as text.

A decimal may also come as the unscaled number in big-endian two's complement, in base64 (`decimal-base64`, or
`decimal-base64:2` where the scale is not the column's), or with its scale in a struct (`decimal-struct`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Context, Decimal, DivisionByZero, Inexact, InvalidOperation, Overflow
from typing import Any

from ingest.columns import octets
from ingest.columns.types import DECIMAL_DIGITS_MAX
from ingest.columns.unfit import Misfit

FLOAT_MAX = 3.4028234663852886e38
SCALE_MAX = 16_384  # as in PostgreSQL; also bounds the text of a number that is sent with its scale
UNSCALED_BYTES_MAX = 16_384  # making digits of bytes takes time that grows with the square

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
            value = octets.bits(value)
        else:
            word = value.strip().lower()
            if word in _TRUE or word in _FALSE:
                return word in _TRUE
            raise Misfit("not true or false")
    if type(value) is bool or (type(value) is int and value in (0, 1)):
        return bool(value)
    raise Misfit("not true or false")


def whole(value: Any, kind: str, encoding: str | None) -> int:
    """For `int` and `long`."""
    number = value if type(value) is int else _to_whole(value, encoding)
    end = 1 << (_BITS[kind] - 1)
    if not -end <= number < end:
        raise Misfit("out of range")
    return number


def _to_whole(value: Any, encoding: str | None) -> int:
    if type(value) is str and encoding == "bits-base64":
        return octets.bits(value)
    if type(value) is str and encoding is None and _DIGITS.fullmatch(value):
        return int(value)
    number = value if type(value) is float else to_decimal(value, encoding, 0)
    if not math.isfinite(number):
        raise Misfit("not a finite number")
    if type(number) is Decimal and number.adjusted() > DECIMAL_DIGITS_MAX:
        raise Misfit("out of range")
    if number != int(number):
        raise Misfit("not a whole number")
    return int(number)


def floating(value: Any, kind: str, encoding: str | None) -> float:
    """For `float` and `double`."""
    if type(value) is str and (special := _not_finite(value)) is not None:
        return special
    if type(value) is float:
        number = value
    else:
        exact = value if type(value) is int else to_decimal(value, encoding, 0)
        try:
            number = float(exact)
        except OverflowError as large:
            raise Misfit("out of range") from large
        if math.isinf(number):
            raise Misfit("out of range")
    if kind == "float" and math.isfinite(number) and abs(number) > FLOAT_MAX:
        raise Misfit("out of range")
    return number


def _not_finite(text: str) -> float | None:
    word = text.strip().lower()
    sign = -1.0 if word.startswith("-") else 1.0
    found = _NOT_FINITE.get(word.removeprefix("-").removeprefix("+"))
    return None if found is None else sign * found


def decimal(value: Any, precision: int, scale: int, encoding: str | None) -> Decimal:
    """For `decimal(precision,scale)`."""
    try:
        number = to_decimal(value, encoding, scale)
    except Misfit:
        if encoding is not None or type(value) is not str:
            raise
        # Producers that send no schema write decimals as base64 all the same.
        number = _unscaled(value, scale)
    if not number.is_finite():
        raise Misfit("not a finite number")
    try:
        fitted = _EXACT.quantize(number, Decimal(1).scaleb(-scale))
    except Inexact as loss:
        raise Misfit(f"it has more than {scale} digits after the point") from loss
    except InvalidOperation as large:
        raise Misfit("out of range") from large
    if fitted and fitted.adjusted() >= precision - scale:
        raise Misfit("out of range")
    return fitted


def to_decimal(value: Any, encoding: str | None, scale: int) -> Decimal:
    """The number, exactly as it was written. `scale` is that of the column, for base64 without one."""
    kind = type(value)
    if kind is int or kind is Decimal:
        return Decimal(value)
    if kind is float:
        return Decimal(repr(value))  # the shortest text that means this number
    if kind is dict and value.keys() >= {"scale", "value"}:
        return _unscaled(value["value"], value["scale"])
    if kind is not str:
        raise Misfit("not a number")
    name, _, given = (encoding or "").partition(":")
    if name == "decimal-base64":
        return _unscaled(value, int(given) if given else scale)
    text = value.strip()
    if len(text) <= _NUMBER_CHARS_MAX and _NUMBER.fullmatch(text):
        return Decimal(text)
    raise Misfit("not a number")


def _unscaled(text: Any, scale: Any) -> Decimal:
    if type(text) is not str or type(scale) is not int or abs(scale) > SCALE_MAX:
        raise Misfit("not a number in base64 with its scale")
    data = octets.base64_bytes(text, padded=True)
    if not 0 < len(data) <= UNSCALED_BYTES_MAX:
        raise Misfit("not a number of a size that can be read")
    number = Decimal(int.from_bytes(data, "big", signed=True))
    sign, digits, _ = number.as_tuple()
    return Decimal((sign, digits, -scale))


def plain(number: Decimal) -> str:
    """Digits without an exponent."""
    if number.is_finite() and number.adjusted() > UNSCALED_BYTES_MAX * 3:
        raise Misfit("too large")
    return format(number, "f")


def converter(kind: str, encoding: str | None) -> Callable[[Any], bool | int | float]:
    """The conversion for a target of this kind, decimals apart."""
    if kind == "boolean":
        return lambda value: boolean(value, encoding)
    if kind in _BITS:
        return lambda value: whole(value, kind, encoding)
    return lambda value: floating(value, kind, encoding)
