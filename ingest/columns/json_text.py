"""JSON text of a value, for columns that hold JSON and for the row as it was before."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import orjson

from ingest.columns.infer import LONG_MAX, LONG_MIN
from ingest.columns.unfit import Misfit


def json_text(value: Any) -> str:
    """Compact JSON in which numbers keep all their digits. `Misfit` if it is not Unicode, or far too deep."""
    try:
        return orjson.dumps(value, default=_digits).decode()
    except TypeError:  # among others an integer beyond 64 bits, which orjson has to be shown as text
        pass
    try:
        return orjson.dumps(_shown_large(value), default=_digits).decode()
    except (TypeError, ValueError, RecursionError) as broken:
        raise Misfit(
            "it cannot be written as JSON: it is not valid Unicode, or too deep, or too large"
        ) from broken


def json_texts(values: Sequence[Any]) -> list[str | None] | None:
    """`json_text` of all that are not None; None if one of them needs a look of its own."""
    try:
        return [None if value is None else orjson.dumps(value, default=_digits).decode() for value in values]
    except TypeError:
        return None


def _digits(value: Any) -> Any:
    if isinstance(value, Decimal) and value.is_finite():
        return orjson.Fragment(str(value))
    raise TypeError(f"not JSON: {type(value).__name__}")


def _shown_large(value: Any) -> Any:
    """The same with each integer beyond 64 bits as a piece of ready text."""
    if isinstance(value, dict):
        return {name: _shown_large(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_shown_large(item) for item in value]
    if type(value) is int and not LONG_MIN <= value <= LONG_MAX:
        return orjson.Fragment(str(value))
    return value
