"""Functions that the format modules share: rejects, and parsing of single fields.

A format module is `ingest/formats/<name>.py` with

    NAME = "debezium"
    def recognises(event: object) -> bool     # cheap, on one decoded event; never raises
    def read(events: Sequence[tuple[int, Any]], context: Context, parsed: Parsed) -> None

`read` gets the events of a request with their indexes, and adds an entry for each index to `parsed`: changes,
a reject, a transaction's end, or the reason why it is ignored. It never raises for the content of an event.
Events contain only JSON values, without NaN, invalid text or deep nesting; a number that does not fit 64 bits
or a double is a large int or a `Decimal` (`json_body.py` ensures this).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn, Protocol

from ingest.change import (
    ParsedRequest,
    Refused,
    Reject,
    RequestContext,
    Row,
    TableName,
    original_of,
    reserved,
)

TIME_MS_MAX = 8_640_000_000_000_000  # in the year 275760: its microseconds fit 64 bits


class Format(Protocol):
    """A format module."""

    @property
    def NAME(self) -> str: ...  # noqa: N802 - a module's constant

    def recognises(self, event: object, /) -> bool: ...

    def read(
        self, events: Sequence[tuple[int, Any]], context: RequestContext, parsed: ParsedRequest, /
    ) -> None: ...


def reject(  # noqa: PLR0913 - all that may be known of a dead letter
    index: int,
    event: object,
    refused: Refused,
    context: RequestContext,
    *,
    table: TableName | None = None,
    source: str = "",
    position: str = "",
    identity: str = "",
    number: int | None = None,
) -> Reject:
    """Return the reject of an event, with the original event and its position as far as it is known."""
    return Reject(
        index,
        refused.reason,
        original_of(event),
        refused.code,
        context.table or table,
        context.source or source,
        position,
        identity,
        number,
    )


# -- shared by formats with one row per event

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NUMBER_END = 2**63


class RowRefused(Refused):
    """An event that could not be parsed, although its position is known."""

    def __init__(self, code: str, reason: str, table: TableName, source: str) -> None:
        super().__init__(code, reason)
        self.table = table
        self.source = source


def read_each(
    events: Sequence[tuple[int, Any]],
    context: RequestContext,
    parsed: ParsedRequest,
    read_one: Callable[[int, Row, RequestContext, ParsedRequest], None],
) -> None:
    """Call `read_one` for each event; an event that it refuses becomes a reject."""
    for index, event in events:
        try:
            if not isinstance(event, dict):
                raise Refused("not-object", "the event is not a JSON object: send an object for each event")
            read_one(index, event, context, parsed)
        except Refused as refused:
            add_reject(index, event, refused, context, parsed)


def add_reject(
    index: int, event: object, refused: Refused, context: RequestContext, parsed: ParsedRequest
) -> None:
    table, source = None, ""
    if isinstance(refused, RowRefused):
        table, source = refused.table, refused.source
    parsed.rejects.append(reject(index, event, refused, context, table=table, source=source))


def refuse_operation(word: object, known: str, table: TableName, source: str) -> NoReturn:
    reason = f"the operation {short(word)} is none of {known}: send the producer's events as they are"
    raise RowRefused("unknown-operation", reason, table, source)


def wanted_row(value: object, name: str, table: TableName, source: str) -> Row:
    """Return the columns of a required row."""
    if isinstance(value, dict) and value:
        return value
    reason = f"`{name}` is not an object of columns: send the producer's events as they are"
    raise RowRefused("no-row", reason, table, source)


def table_of_topic(topic: str, context: RequestContext) -> TableName | None:
    """Return the table of a topic `server.schema.table`: the last two parts are namespace and name."""
    parts = [part for part in topic.split(".") if part]
    if not parts or reserved(parts[-1]) is not None:
        return None
    return tuple(parts[-2:]) if len(parts) > 1 else (*context.namespace, parts[0])


def source_of(context: RequestContext, *parts: object) -> str:
    """Return the request's source; else the name of the producer and of its instance."""
    if context.source:
        return context.source
    return ":".join(str(part) for part in parts if isinstance(part, str | int) and part != "")


def text_of(value: object) -> str:
    return value if isinstance(value, str) else ""


def row_of(value: object) -> Row | None:
    return value if isinstance(value, dict) else None


def number_of(value: object) -> int | None:
    """Return a count, an offset or a time: not negative, at most 63 bits, as a number or as decimal text."""
    if isinstance(value, str) and len(value) < 20 and value.isascii() and value.isdigit():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _NUMBER_END:
        return value
    return None


def names_of(value: object) -> tuple[str, ...] | None:
    """Return a list of column names; None if it is empty or not a list of names."""
    if not isinstance(value, list) or not value:
        return None
    return tuple(value) if all(isinstance(name, str) and name for name in value) else None


def time_us_of(value: object) -> int | None:
    """Return the microseconds since the epoch of an ISO 8601 text; without a zone it is UTC."""
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MICROSECOND


def time_ms_of(value: object) -> int | None:
    time_us = time_us_of(value)
    return None if time_us is None else time_us // 1000


def short(value: object, length_max: int = 60) -> str:
    """Return a value of the event, quoted, for a message."""
    text = repr(value)
    return text if len(text) <= length_max else f"{text[: length_max - 3]}..."
