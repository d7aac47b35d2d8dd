"""The type of a column of which nothing is declared, from the JSON values of one batch.

The first value that is not null decides what the column is; what does not fit it is refused later, by itself.

    true, false          boolean
    whole numbers        long; beyond 64 bits decimal(38,0); beyond 38 digits string
    other numbers        double, also where whole numbers stand beside them
    text                 string: a date in it is never guessed
    arrays               a list, if all elements of all arrays have one of the types above
    objects              string that holds their JSON, and so for all other arrays; a producer that wants a
                         struct declares it
    only nulls           None: the column is made when a value comes
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from ingest.columns.types import DECIMAL_DIGITS_MAX, IcebergType

LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1

_DECIMAL_END = 10**DECIMAL_DIGITS_MAX
_NUMBERS = frozenset({int, float, Decimal})
_NULL = type(None)


def infer(values: Sequence[Any]) -> IcebergType | None:
    """The Iceberg type of the values, or None if they are all null."""
    kinds = set(map(type, values)) - {_NULL}
    if not kinds:
        return None
    first = next(iter(kinds)) if len(kinds) == 1 else type(next(v for v in values if v is not None))
    if first is bool:
        return "boolean"
    if kinds == {list}:
        return _list([item for value in values if value is not None for item in value])
    if first not in _NUMBERS:
        return "string"
    if kinds & {float, Decimal}:
        return "double"
    return _whole([value for value in values if type(value) is int])


def _list(elements: Sequence[Any]) -> IcebergType:
    """A list of the elements' one type; JSON text if they have several, or none."""
    kinds = set(map(type, elements)) - {_NULL}
    if kinds in ({bool}, {str}) or (kinds and kinds <= _NUMBERS):
        return {"type": "list", "element": infer(elements), "element-required": False}
    return "string"


def _whole(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    if low >= LONG_MIN and high <= LONG_MAX:
        return "long"
    if low > -_DECIMAL_END and high < _DECIMAL_END:
        return f"decimal({DECIMAL_DIGITS_MAX},0)"
    return "string"
