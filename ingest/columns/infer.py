"""The type of a column of which nothing is declared, from the JSON values of one batch.

The first value that is not null decides what the column is; what does not fit it is refused later, by itself.

    true, false          boolean
    whole numbers        long; beyond 64 bits decimal(38,0); beyond 38 digits string
    other numbers        double, also where whole numbers stand beside them
    text                 string: a date in it is never guessed
    objects and arrays   string that holds their JSON; the producer that wants a struct declares one
    only nulls           None: the column is made when a value comes
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from ingest.columns.types import DECIMAL_DIGITS_MAX

LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1

_DECIMAL_END = 10**DECIMAL_DIGITS_MAX
_NUMBERS = frozenset({int, float, Decimal})
_NULL = type(None)


def infer(values: Sequence[Any]) -> str | None:
    """The Iceberg type of the values, or None if they are all null."""
    kinds = set(map(type, values)) - {_NULL}
    if not kinds:
        return None
    first = next(iter(kinds)) if len(kinds) == 1 else type(next(v for v in values if v is not None))
    if first is bool:
        return "boolean"
    if first not in _NUMBERS:
        return "string"
    if kinds & {float, Decimal}:
        return "double"
    return _whole([value for value in values if type(value) is int])


def _whole(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    if low >= LONG_MIN and high <= LONG_MAX:
        return "long"
    if low > -_DECIMAL_END and high < _DECIMAL_END:
        return f"decimal({DECIMAL_DIGITS_MAX},0)"
    return "string"
