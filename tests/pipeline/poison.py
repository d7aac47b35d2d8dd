"""Bad events, each wrong in its own way: what comes over the wire, and what its dead letter says.

A way takes a sound event and spoils it. `says` are words that the reason must have.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

Event = dict[str, Any]
DEEP = 150

SCHEMA: dict[str, Any] = {
    "type": "struct",
    "identifier-field-ids": [1],
    "fields": [
        {"id": 1, "name": "id", "type": "long", "required": True},
        {"id": 2, "name": "n", "type": "long", "required": False},
        {"id": 3, "name": "price", "type": "decimal(10, 2)", "required": False},
        {"id": 4, "name": "day", "type": "date", "required": False},
        {"id": 5, "name": "at", "type": "timestamptz", "required": False},
        {"id": 6, "name": "flag", "type": "boolean", "required": False},
        {"id": 7, "name": "note", "type": "string", "required": False},
    ],
}


@dataclass(frozen=True, slots=True)
class Way:
    """`keeps_place`: its letter knows the event's position, so that a replay takes its old place."""

    name: str
    spoil: Callable[[Event], bytes]
    says: tuple[str, ...]
    routed: bool = True
    keeps_place: bool = True


def _set(field: str, value: Any) -> Callable[[Event], bytes]:
    def spoil(event: Event) -> bytes:
        return orjson.dumps({**event, field: value})

    return spoil


def _column(name: str, value: Any) -> Callable[[Event], bytes]:
    def spoil(event: Event) -> bytes:
        return orjson.dumps({**event, "after": {**event["after"], name: value}})

    return spoil


def _without(field: str) -> Callable[[Event], bytes]:
    return lambda event: orjson.dumps({name: value for name, value in event.items() if name != field})


def _text(column: str, instead: bytes) -> Callable[[Event], bytes]:
    """Replace a value by bytes that our JSON writer would not write."""
    return lambda event: orjson.dumps(event).replace(orjson.dumps(event["after"][column]), instead)


def _delete_without_key(event: Event) -> bytes:
    spoilt = copy.deepcopy(event) | {"operation": "DELETE", "after": None, "before": None}
    return orjson.dumps(spoilt | {"metadata": {"primaryKey": ["id"]}})


WAYS: tuple[Way, ...] = (
    Way("broken off", lambda event: orjson.dumps(event)[:-7], (), routed=False, keeps_place=False),
    Way("not UTF-8", _text("note", b'"\xff\xfe"'), (), routed=False, keeps_place=False),
    Way("too deep", _text("note", b"[" * DEEP + b"]" * DEEP), ("levels",), False, False),
    Way("not a number", _text("n", b"NaN"), ("number",), False, False),
    Way("not an object", lambda event: orjson.dumps(event["rowId"]), ("object",), False, False),
    Way("no table", _without("table"), ("table",), routed=False),
    Way("table is no text", _set("table", 7), ("table", "text"), routed=False),
    Way("bad operation", _set("operation", "UPSERT"), ("operation",)),
    Way("no operation", _without("operation"), ("operation",)),
    Way("bad sequence", _set("sequence", "first"), ("sequence",), keeps_place=False),
    Way("bad time", _set("timestamp", "now"), ("timestamp",)),
    Way("no row", _set("after", None), ("after",)),
    Way("row is a list", lambda event: orjson.dumps({**event, "after": [event["rowId"]]}), ("after",)),
    Way("metadata is text", _set("metadata", "none"), ("metadata",)),
    Way("delete without a key", _delete_without_key, ("key", "before")),
    Way("null key", _column("id", None), ("null key", '"id"')),
    Way("wrong type", _column("n", "many"), ('"n"', "many", "long")),
    Way("too large", _text("n", str(2**70).encode()), ('"n"', str(2**70), "long")),
    Way("part of a whole number", _column("n", 1.5), ('"n"', "1.5", "long")),
    Way("no such day", _column("day", "2026-13-45"), ('"day"', "2026-13-45", "date")),
    Way("no decimal", _column("price", "12.3.4"), ('"price"', "12.3.4", "decimal")),
    Way("too many digits", _column("price", "123456789012.55"), ('"price"', "123456789012.55", "decimal")),
    Way("no time", _column("at", "yesterday"), ('"at"', "yesterday", "timestamptz")),
    Way("perhaps", _column("flag", "perhaps"), ('"flag"', "perhaps", "boolean")),
)
