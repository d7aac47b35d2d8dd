"""A value that does not fit its column."""

from __future__ import annotations

from typing import Any

VALUE_CHARS_MAX = 80


class ConversionError(ValueError):
    """Why a value cannot be converted to a type. Raised by the conversions, which do not know the column."""


class RejectedValue(ValueError):
    """The same, with column, value and type: the reason of a dead letter."""

    def __init__(self, column: str, value: Any, type_: Any, why: str = "") -> None:
        self.column, self.value, self.type = column, value, type_
        wanted = type_ if isinstance(type_, str) else f"the {type_['type']}"
        reason = f": {why}" if why else ""
        super().__init__(f'column "{column}": {shown(value)} does not fit {wanted}{reason}')


def shown(value: Any) -> str:
    """Return the value for a message, at most 80 characters long, and always valid Unicode."""
    text = repr(value[: VALUE_CHARS_MAX + 1]) if isinstance(value, str) else _described(value)
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= VALUE_CHARS_MAX else f"{text[: VALUE_CHARS_MAX - 1]}…"


def _described(value: Any) -> str:
    try:
        return repr(value)
    except (ValueError, RecursionError):  # an integer of more than 4,300 digits; a deep structure
        return f"a very large {type(value).__name__}"
