"""Parse the body of a request into JSON events, with exact numbers. An invalid event does not affect the
others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from decimal import Decimal, InvalidOperation
from math import isfinite
from typing import Any

import orjson

from catalog.errors import Invalid
from ingest.change import ParsedRequest, Reject, RequestContext, original_of, write_decimal

DEPTH_MAX = 100
_DUMP_DEPTH_MAX = 253  # the limit of orjson

_LARGE_BYTES = 32_768  # a text of this size is always checked, without counting its brackets
_DIGITS_MAX = 1_000  # a double ends at 308, so orjson refuses longer numbers
_DIGITS_EXACT = 17  # digits that a double always keeps
# Digits and points become "0", everything else a space, so that a plain search finds long numbers.
_NUMERALS = bytes(48 if chr(byte) in "0123456789." else 32 for byte in range(256))
_LONG = b"0" * (_DIGITS_EXACT + 1)
_BEFORE_A_NUMBER = b":,[ \t\r\n-"  # not a quote: digits in a string are exact anyway


class NotJson(ValueError):
    """The text is not one JSON value; the message says where."""


class Unwritable:
    """A NaN or an infinite number. Only its own event is refused."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text


def decode(raw: bytes, *, plain: bool = False) -> Any:
    """Return the one value in `raw`. Raises NotJson. `plain`: it is known that there is no long number."""
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise NotJson(str(error)) from None
    return value if plain or not has_long_number(raw) else decode_leniently(raw)


def decode_leniently(raw: bytes) -> Any:
    """Like `decode`, but accepts values that only some JSON writers write; `is_sound` then finds their
    events.
    """
    try:
        return _decoder.decode(raw.decode())
    except (ValueError, RecursionError) as error:
        raise NotJson(str(error)) from None


def values_in(raw: bytes) -> tuple[list[bytes], bytes]:
    """Return the texts of consecutive values, and the rest after the last complete one."""
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
    """Return whether the event can be stored: it can be written as JSON again, and is not too deep."""
    try:
        orjson.dumps(_deepened(event), default=write_decimal)
    except TypeError:  # also for an integer beyond 64 bits, which is allowed
        return _is_sound_inside(event)
    return True


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
    """Return whether `is_sound` must check what `decode` returned; cheap, so that small requests cost
    nothing.
    """
    return len(raw) >= _LARGE_BYTES or raw.count(b"[") + raw.count(b"{") >= DEPTH_MAX


def has_long_number(raw: bytes) -> bool:
    """Return whether there is a number that orjson would round; nanosecond times and the like are not."""
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
    return len(run) > 18 + (run[:1] < b"9")  # 19 digits that begin below 9 are within 64 bits


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
    except InvalidOperation:  # an exponent out of range
        return number
    return number if exact == Decimal(repr(number)) else exact


def _next(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _deepened(event: object) -> object:
    """Wrap the event in enough lists that orjson's own limit is reached at `DEPTH_MAX` levels of the
    event.
    """
    for _ in range(_DUMP_DEPTH_MAX - DEPTH_MAX):
        event = [event]
    return event


_decoder = json.JSONDecoder(parse_int=_integer, parse_float=_fraction, parse_constant=Unwritable)


# -- the body of a request to its events

# Objects that wrap a list of events, by the list's name, and the other fields that they may have.
_WRAPPERS = {
    # the fields of a `cdc_batch` message
    "events": frozenset({"events", "type", "timestamp", "correlationId", "sourceDoId", "sourceShardName"})
    | {"sequenceNumber", "firstEventSequence", "lastEventSequence", "sizeBytes", "isRetry", "retryCount"},
    "data": frozenset({"data"}),
    "records": frozenset({"records", "key_schema", "key_schema_id", "value_schema", "value_schema_id"}),
    "payload": frozenset({"payload", "length"}),
}
_LINES = ("ndjson", "jsonl", "json-lines", "json-seq", "newline")
_BOM = b"\xef\xbb\xbf"
_OBJECTS = {dict}
_LOOK_AT = 8  # elements that are checked for events

_NOT_JSON = "the body is not JSON ({}): send a JSON object, an array, or one object on each line"
_UNSOUND = (
    "the event has a number or text that cannot be kept (NaN, an infinite number, a broken character), or "
    f"more than {DEPTH_MAX} levels: send null or text instead"
)

Recognises = Callable[[object], bool]


def split_events(
    body: bytes, context: RequestContext, is_event: Recognises, parsed: ParsedRequest
) -> list[tuple[int, Any]]:
    """Return the events of a body with their indexes. Sets `parsed.events`, and adds rejects for invalid
    pieces.

    `is_event` returns whether a value looks like an event of a known producer. Raises Invalid if there is no
    event.
    """
    raw = body.removeprefix(_BOM)
    if not raw or raw.isspace():
        raise Invalid("The body is empty: send at least one event as JSON")
    events: list[tuple[int, Any]] = []
    try:
        values = _values(raw, context.content_type, is_event)
        _add(values, context, parsed, events, sound=not may_be_deep(raw))
    except NotJson as error:
        return _refuse_all(body, str(error), context, parsed)
    if not parsed.events:
        raise Invalid("The body has no events: send at least one")
    return events


def add_events(
    values: Iterable[Any], context: RequestContext, parsed: ParsedRequest
) -> list[tuple[int, Any]]:
    """Like `split_events`, for decoded events. Raises Invalid if there is none, or one is far too deep."""
    events: list[tuple[int, Any]] = []
    try:
        _add(values, context, parsed, events)
    except NotJson as error:
        raise Invalid(f"An event has {error}") from None
    if not parsed.events:
        raise Invalid("The list of events is empty: send at least one")
    return events


class _Bad:
    """A piece that could not be parsed."""

    def __init__(self, raw: bytes, reason: str) -> None:
        self.raw = raw
        self.reason = reason


def _values(raw: bytes, content_type: str, is_event: Recognises) -> Iterable[Any]:
    """Return the values in the body, with wrapped lists expanded; a `_Bad` for each piece that is not a
    value.
    """
    try:
        return _spread(decode(raw), is_event)
    except NotJson as error:
        whole = error
    lines = [line for line in raw.split(b"\n") if line and not line.isspace()] if b"\n" in raw else []
    wanted = any(word in content_type.lower() for word in _LINES)
    if lines and (wanted or _is_value(lines[0])):
        return _of_lines(lines, is_event, plain=not has_long_number(raw))
    try:
        return [_checked(value) for value in _spread(decode_leniently(raw), is_event)]
    except NotJson:
        pass
    if lines and not _is_spread(lines[0].strip()) and any(_is_value(line) for line in lines):
        return _of_lines(lines, is_event, plain=False)
    pieces, rest = values_in(raw)
    if not pieces:
        raise whole
    values = [value for piece in pieces for value in _of_piece(piece, is_event)]
    return [*values, _Bad(rest, _NOT_JSON.format("it breaks off or goes wrong here"))] if rest else values


def _spread(value: Any, is_event: Recognises) -> list[Any]:
    if value.__class__ is list:
        return value
    if value.__class__ is dict:
        inner = _unwrapped(value, is_event)
        if inner is not None:
            return inner
    return [value]


def _unwrapped(value: dict[str, Any], is_event: Recognises) -> list[Any] | None:
    """Return the list of events that an object wraps; None if the object is an event itself."""
    for name, required in _WRAPPERS.items():
        inner = value.get(name)
        if inner.__class__ is not list:
            continue
        if value.keys() <= required:
            return inner
        # Canal's messages have the rows of one table in `data`, and all other fields beside it.
        is_canal = name == "data" and "table" in value and "type" in value
        if not is_canal and any(is_event(element) for element in inner[:_LOOK_AT]):
            return inner
    return None


def _is_spread(line: bytes) -> bool:
    """Return whether a value begins here that continues on the next lines."""
    return line == b"{" or line.startswith(b"[")


def _is_value(line: bytes) -> bool:
    try:
        return decode(line).__class__ in (dict, list)
    except NotJson:
        return False


def _of_lines(lines: list[bytes], is_event: Recognises, *, plain: bool) -> list[Any]:
    return [value for line in lines for value in _of_piece(line, is_event, plain=plain)]


def _of_piece(piece: bytes, is_event: Recognises, *, plain: bool = False) -> list[Any]:
    try:
        return _spread(decode(piece, plain=plain), is_event)
    except NotJson as error:
        reason = str(error)
    pieces, rest = values_in(piece)
    if len(pieces) > 1 and not rest:
        return [value for part in pieces for value in _of_piece(part, is_event)]
    if pieces and not rest:
        return [_Bad(piece, _UNSOUND)]
    return [_Bad(piece, f"this line is not JSON ({reason}): send one whole JSON object on each line")]


def _checked(value: Any) -> Any:
    return value if is_sound(value) else _Bad(_written(value), _UNSOUND)


def _written(value: Any) -> bytes:
    try:
        return original_of(value)
    except RecursionError:
        raise NotJson(f"more than {DEPTH_MAX} levels") from None


def _add(
    values: Iterable[Any],
    context: RequestContext,
    parsed: ParsedRequest,
    events: list[tuple[int, Any]],
    *,
    sound: bool = False,
) -> None:
    found = list(values)
    if not sound and not is_sound([value for value in found if value.__class__ is not _Bad]):
        found = [value if value.__class__ is _Bad else _checked(value) for value in found]
    if set(map(type, found)) == _OBJECTS:
        events.extend(enumerate(found, parsed.events))
        parsed.events += len(found)
        return
    for value in found:
        _add_one(value, context, parsed, events)


def _add_one(
    value: Any, context: RequestContext, parsed: ParsedRequest, events: list[tuple[int, Any]]
) -> None:
    index = parsed.events
    parsed.events = index + 1
    if value.__class__ is dict:
        events.append((index, value))
    elif value is None:
        parsed.ignored[index] = "tombstone"
    elif value.__class__ is _Bad:
        code = "bad-value" if value.reason is _UNSOUND else "not-json"
        parsed.rejects.append(_reject(index, value.reason, value.raw, code, context))
    else:
        reason = "the event is not a JSON object: send an object for each event"
        parsed.rejects.append(_reject(index, reason, original_of(value), "not-object", context))


def _refuse_all(
    body: bytes, reason: str, context: RequestContext, parsed: ParsedRequest
) -> list[tuple[int, Any]]:
    parsed.events = 1
    parsed.ignored.clear()
    parsed.rejects[:] = [_reject(0, _NOT_JSON.format(reason), body, "not-json", context)]
    return []


def _reject(index: int, reason: str, raw: bytes, code: str, context: RequestContext) -> Reject:
    return Reject(index, reason, raw, code, context.table, context.source or "")
