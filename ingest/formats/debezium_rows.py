"""Debezium's rows as rows: without placeholders of values that were not sent, and MongoDB's out of its text.

PostgreSQL does not log a large value that an update leaves alone (TOAST). Debezium puts a placeholder in its
place, in a form that fits the column. Such a column is left out, so it keeps its value.
"""

from __future__ import annotations

from base64 import b64encode
from hashlib import md5
from typing import Any
from uuid import UUID

import orjson

from ingest.change import Row
from ingest.formats.contract import Refused
from ingest.formats.decode import NotJson, decode, is_sound

_PLACEHOLDER = "__debezium_unavailable_value"
_BYTES = _PLACEHOLDER.encode()
_TEXTS = frozenset(
    {
        _PLACEHOLDER,
        b64encode(_BYTES).decode(),
        _BYTES.hex(),
        orjson.dumps({_PLACEHOLDER: _PLACEHOLDER}).decode(),  # hstore as JSON
    }
)
_LENGTHS = frozenset(map(len, _TEXTS))
_FORMS = (str, list, dict)
_ELEMENT_TEXTS = _TEXTS | {str(UUID(bytes=md5(_BYTES, usedforsecurity=False).digest(), version=3))}
# In arrays of numbers each byte is an element.
_NUMBERS = list(_BYTES)
_DECIMALS = [b64encode(bytes([byte])).decode() for byte in _BYTES]
_MAP = {_PLACEHOLDER: _PLACEHOLDER}

# MongoDB's extended JSON, simple forms: the value is all that is of interest.
_NUMBER_MARKS = frozenset({"$numberLong", "$numberInt", "$numberDouble"})
_MARKS = _NUMBER_MARKS | {"$oid", "$numberDecimal", "$date", "$symbol", "$uuid"}


def row_of(value: object, what: str) -> Row | None:
    """`before` or `after` as a row; Refused if it is something else."""
    if value is None:
        return None
    if isinstance(value, str):
        return _document(value, what)
    if not isinstance(value, dict):
        raise Refused("bad-row", f"`{what}` is not an object: send the row as an object of columns")
    for held in value.values():
        if held.__class__ in _FORMS and is_placeholder(held):
            return {name: held for name, held in value.items() if not is_placeholder(held)}
    return value


def is_placeholder(value: object) -> bool:
    """Whether it stands for a value that was not sent."""
    if isinstance(value, str):
        return len(value) in _LENGTHS and value in _TEXTS  # no hash of a long text
    return _is_array(value) if isinstance(value, list) else value == _MAP


def _is_array(value: list[Any]) -> bool:
    if len(value) == 1:
        return value[0].__class__ is str and value[0] in _ELEMENT_TEXTS
    return len(value) == len(_BYTES) and (value in (_NUMBERS, _DECIMALS))


def _document(text: str, what: str) -> Row:
    """MongoDB sends a document as text of extended JSON."""
    try:
        value = decode(text.encode())
    except NotJson:
        value = None
    if not isinstance(value, dict) or not is_sound(value):
        raise Refused("bad-row", f"`{what}` is text, but not of a JSON object: send the row as an object")
    return {name: plain(held) for name, held in value.items()}


def plain(value: Any) -> Any:
    """Extended JSON without its type marks."""
    if isinstance(value, list):
        return [plain(element) for element in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        mark, held = next(iter(value.items()))
        if mark in _MARKS:
            return _number(held) if mark in _NUMBER_MARKS else plain(held)
    return {name: plain(held) for name, held in value.items()}


def _number(held: Any) -> Any:
    if not isinstance(held, str):
        return held
    try:
        number = decode(held.encode())
    except NotJson:
        return held  # NaN and the like stay text
    return number if isinstance(number, int | float | str) else held
