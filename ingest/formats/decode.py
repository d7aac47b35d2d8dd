"""JSON text to values, exactly, and never more than the rest of ingest can carry.

orjson does the work. What it would lose or refuse as a whole is looked at again:

- A whole number beyond 64 bits is a Python int, any other that a double would round is a `Decimal`.
- One NaN, infinite number or broken surrogate in a large array must cost that event only, so such a body is
  read once more, leniently, and each event is judged by itself.
- Deep nesting is refused here, because what is kept must be written again later.
"""

from __future__ import annotations

import json
from decimal import Decimal, InvalidOperation
from math import isfinite
from typing import Any

import orjson

DEPTH_MAX = 100
_DUMP_DEPTH_MAX = 253  # what orjson writes

_LARGE_BYTES = 32_768  # has as many brackets as can be, if anything has
_DIGITS_MAX = 1_000  # a double ends at 308, so that orjson refuses whatever is longer
_DIGITS_EXACT = 17  # what a double can hold in every case
# Digits and points become "0", everything else a space: long numbers can then be found by a plain search.
_NUMERALS = bytes(48 if chr(byte) in "0123456789." else 32 for byte in range(256))
_LONG = b"0" * (_DIGITS_EXACT + 1)
_BEFORE_A_NUMBER = b":,[ \t\r\n-"  # not a quote: digits as text are exact anyway


class NotJson(ValueError):
    """The text is not one JSON value; the message says where."""


class Unwritable:
    """Stands for a NaN or an infinite number: it makes its event unsound and nothing else."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text


def decode(raw: bytes, *, plain: bool = False) -> Any:
    """The one value in `raw`. Raises NotJson. `plain`: it is known that there is no long number."""
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise NotJson(str(error)) from None
    return value if plain or not has_long_number(raw) else decode_leniently(raw)


def decode_leniently(raw: bytes) -> Any:
    """As `decode`, but takes what only some JSON writers write; `is_sound` then tells the events apart."""
    try:
        return _decoder.decode(raw.decode())
    except (ValueError, RecursionError) as error:
        raise NotJson(str(error)) from None


def values_in(raw: bytes) -> tuple[list[bytes], bytes]:
    """The texts of the values that stand one after the other, and what is left after the last whole one."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return [], raw
    found, at = [], _next(text, 0)
    while at < len(text):
        try:
            _, end = _decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            break
        found.append(text[at:end].encode())
        at = _next(text, end)
    return found, text[at:].encode()


def is_sound(event: object) -> bool:
    """Whether the event can be kept: it can be written again as it is, and is not too deep."""
    try:
        orjson.dumps(_deepened(event), default=write_decimal)
    except TypeError:  # also for a whole number beyond 64 bits, which is no fault
        return _is_sound_inside(event)
    return True


def write_decimal(value: object) -> orjson.Fragment:
    """For orjson: a Decimal as the number it is."""
    if isinstance(value, Decimal):
        return orjson.Fragment(str(value).encode())
    raise TypeError(type(value).__name__)


def _is_sound_inside(event: object) -> bool:
    level: list[Any] = [event]
    for _ in range(DEPTH_MAX + 1):
        names = [name for value in level if isinstance(value, dict) for name in value]
        if not all(_is_plain(value) for value in (*level, *names)):
            return False
        held = [value.values() if isinstance(value, dict) else value for value in level if _is_nest(value)]
        level = [inner for values in held for inner in values]
        if not level:
            return True
    return False


def _is_nest(value: object) -> bool:
    return isinstance(value, dict | list)


def _is_plain(value: object) -> bool:
    if isinstance(value, str):
        return value.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in value)
    return not isinstance(value, Unwritable)


def may_be_deep(raw: bytes) -> bool:
    """Whether to ask `is_sound` of what `decode` made; cheap, so that small requests pay nothing."""
    return len(raw) >= _LARGE_BYTES or raw.count(b"[") + raw.count(b"{") >= DEPTH_MAX


def has_long_number(raw: bytes) -> bool:
    """Whether there is a number that orjson would round; nanoseconds and the like do not count."""
    plain = raw.translate(_NUMERALS)
    at = plain.find(_LONG)
    while at >= 0:
        end = plain.find(b" ", at)
        run = raw[at:] if end < 0 else raw[at:end]
        if _is_long(run) and raw[at - 1 : at] in _BEFORE_A_NUMBER:
            return True
        at = plain.find(_LONG, at + len(run))
    return False


def _is_long(run: bytes) -> bool:
    if b"." in run:
        return len(run.replace(b".", b"").lstrip(b"0")) > _DIGITS_EXACT
    return len(run) > 18 + (run[:1] < b"9")  # all of 19 digits that begin below 9 are within 64 bits


def _integer(text: str) -> int | Unwritable:
    return int(text) if len(text) <= _DIGITS_MAX else Unwritable(text)


def _fraction(text: str) -> float | Decimal | Unwritable:
    number = float(text)
    if not isfinite(number):
        return Unwritable(text)
    mantissa = text.lower().partition("e")[0]
    if len(mantissa.replace(".", "").lstrip("-0").rstrip("0")) <= _DIGITS_EXACT:
        return number
    try:
        exact = Decimal(text)
    except InvalidOperation:  # an exponent beyond all bounds
        return number
    return number if exact == Decimal(repr(number)) else exact


def _next(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _deepened(event: object) -> object:
    """Inside so many lists that orjson's own limit is reached at `DEPTH_MAX` levels of the event."""
    for _ in range(_DUMP_DEPTH_MAX - DEPTH_MAX):
        event = [event]
    return event


_decoder = json.JSONDecoder(parse_int=_integer, parse_float=_fraction, parse_constant=Unwritable)
