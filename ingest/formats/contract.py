"""What the format modules share: how an event is refused, how its table is named, what its fingerprint is.

A format module is `ingest/formats/<name>.py` with

    NAME = "debezium"
    def recognises(event: object) -> bool     # cheap, on one decoded event; never raises
    def read(events: Sequence[tuple[int, Any]], context: Context, parsed: Parsed) -> None

`read` gets the events of a request with their indexes, and puts something for each index into `parsed`:
changes, a reject, a transaction's end, or a word on why it is ignored. It never raises for what an event
holds. Events are objects of what JSON can say, without NaN, broken text or great depth; a number that 64 bits
or a double cannot hold is a large int or a `Decimal` (`decode.py` has seen to it).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Protocol

import orjson

from catalog.errors import Invalid
from catalog.names import check_name
from ingest.change import Context, Parsed, Reject, TableName
from ingest.formats.decode import write_decimal

NO_TABLE = "the event does not say to which table it belongs: post it to /cdc/{namespace}/{table}"
RESERVED_SUFFIXES = ("__changes", "__rejects")
TIME_MS_MAX = 8_640_000_000_000_000  # in the year 275760: microseconds of it are still within 64 bits
_NUMBER_MAX = 2**63 - 1
_NAME_IT = "name it by text, or post to /cdc/{namespace}/{table}"


class Format(Protocol):
    """A format module."""

    @property
    def NAME(self) -> str: ...  # noqa: N802 - a module's constant

    def recognises(self, event: object, /) -> bool: ...

    def read(self, events: Sequence[tuple[int, Any]], context: Context, parsed: Parsed, /) -> None: ...


class Refused(Exception):
    """Raised inside a format module for one event; its `read` makes a `Reject` of it."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


def reject(  # noqa: PLR0913 - all that may be known of a dead letter
    index: int,
    event: object,
    refused: Refused,
    context: Context,
    *,
    table: TableName | None = None,
    source: str = "",
    position: str = "",
    identity: str = "",
    number: int | None = None,
) -> Reject:
    """The dead letter of an event, with the event as it came in and what is known of its place."""
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


def original_of(event: object) -> bytes:
    """The event as JSON text, even if it holds what orjson does not write."""
    try:
        return orjson.dumps(event, default=write_decimal)
    except TypeError:
        return json.dumps(event, default=str, separators=(",", ":")).encode()


def fingerprint(*parts: object) -> str:
    """The same for the same content, and for no other: 128 bits as 32 hex digits."""
    return blake2b(original_of(parts), digest_size=16).hexdigest()


def reserved(name: str) -> str | None:
    """Why changes cannot go to a table of this name; None if they can."""
    suffix = next((suffix for suffix in RESERVED_SUFFIXES if name.endswith(suffix)), None)
    if suffix is None:
        return None
    return f"names that end in {suffix} belong to the tables that Calve adds: post to another path"


@lru_cache(maxsize=4096)
def checked_table(levels: TableName) -> TableName:
    """`levels` if each may name what it names; Refused if not."""
    reason = reserved(levels[-1])
    if reason is not None:
        raise Refused("reserved-table", f"the table {levels[-1]} is reserved: {reason}")
    try:
        for level in levels[:-1]:
            check_name(level, "namespace")
        check_name(levels[-1], "table")
    except Invalid as invalid:
        raise Refused("bad-table", f"{invalid.message}: rename it, or post to another path") from None
    return levels


def table_of(namespace: object, name: object, context: Context) -> TableName:
    """The table of an event that says `namespace` (None or "" if it has none) and `name` in two fields."""
    if context.table is not None:
        return context.table
    if name is None or name == "":
        raise Refused("no-table", NO_TABLE)
    if not isinstance(name, str):
        raise Refused("bad-table", f"the table's name is not text: {_NAME_IT}")
    if namespace is None or namespace == "":
        return checked_table((*context.namespace, name))
    if not isinstance(namespace, str):
        raise Refused("bad-table", f"the name of the table's schema or database is not text: {_NAME_IT}")
    return checked_table((namespace, name))


def table_of_dotted(text: object, context: Context) -> TableName:
    """The table of an event that names it by one text, with dots between the levels."""
    if context.table is not None:
        return context.table
    if text is None or text == "":
        raise Refused("no-table", NO_TABLE)
    if not isinstance(text, str):
        raise Refused("bad-table", f"the table's name is not text: {_NAME_IT}")
    levels = tuple(text.split("."))
    return checked_table(levels if len(levels) > 1 else (*context.namespace, text))


def whole_number(value: object) -> int | None:
    """The number in an int, or in a text of digits; None if it is neither, or does not fit 63 bits."""
    if isinstance(value, str) and len(value) <= 19 and value.isascii() and value.isdigit():
        value = int(value)
    if value.__class__ is int and 0 <= value <= _NUMBER_MAX:
        return value
    return None
