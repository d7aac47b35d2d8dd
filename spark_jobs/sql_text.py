"""Names and values as Spark SQL text. Nothing else puts a name or a value into a statement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

Bounds = tuple[str, str]  # literals: the smallest and the largest key


def quoted(*names: str) -> str:
    """`a`.`b`.`c`"""
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)


def same_key(left: str, right: str, key: Sequence[str]) -> str:
    return " AND ".join(f"{left}.{quoted(column)} = {right}.{quoted(column)}" for column in key)


def within(alias: str, column: str, bounds: Bounds) -> str:
    return f"{alias}.{quoted(column)} BETWEEN {bounds[0]} AND {bounds[1]}"


def text_literal(value: str) -> str:
    """By its bytes: there is nothing to escape, whatever the session says about escapes."""
    return f"CAST(X'{value.encode().hex()}' AS STRING)"


def literal(value: Any, type_: pa.DataType) -> str | None:
    """A value as SQL text of exactly the column's type; None for a type whose order files do not keep."""
    if pat.is_integer(type_):
        return f"CAST({value} AS {'BIGINT' if type_.bit_width == 64 else 'INT'})"
    if pat.is_string(type_) or pat.is_large_string(type_):
        return text_literal(value)
    if pat.is_decimal(type_):
        return f"CAST('{value:f}' AS DECIMAL({type_.precision}, {type_.scale}))"
    if pat.is_date32(type_):
        return f"DATE'{value.isoformat()}'"
    if pat.is_timestamp(type_):
        # With its zone, so that the session's own does not matter.
        kind = "TIMESTAMP" if type_.tz is not None else "TIMESTAMP_NTZ"
        return f"{kind}'{value.isoformat(sep=' ')}'"
    return None


def bounds_between(ends: tuple[Any, Any], type_: pa.DataType) -> Bounds | None:
    """The smallest and the largest value as literals; None where there is no literal for the type."""
    low, high = literal(ends[0], type_), literal(ends[1], type_)
    return (low, high) if low is not None and high is not None else None
