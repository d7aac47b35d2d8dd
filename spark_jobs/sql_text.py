"""Names and values as Spark SQL text. Nothing else puts a name or a value into a statement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

LISTED_MAX = 200  # Iceberg looks at no more values of a list when it leaves out files


@dataclass(frozen=True, slots=True)
class Limit:
    """Literals that the values of a column lie between; all of them where they are few."""

    low: str
    high: str
    listed: tuple[str, ...] = ()


def quoted(*names: str) -> str:
    """`a`.`b`.`c`"""
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)


def same_key(left: str, right: str, key: Sequence[str]) -> str:
    return " AND ".join(f"{left}.{quoted(column)} = {right}.{quoted(column)}" for column in key)


def within(alias: str, column: str, limit: Limit) -> str:
    name = f"{alias}.{quoted(column)}"
    if limit.listed:
        return f"{name} IN ({', '.join(limit.listed)})"
    return f"{name} BETWEEN {limit.low} AND {limit.high}"


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


def limit_between(low: Any, high: Any, type_: pa.DataType) -> Limit | None:
    """None where there is no literal for the type."""
    ends = literal(low, type_), literal(high, type_)
    return Limit(ends[0], ends[1]) if ends[0] is not None and ends[1] is not None else None


def limit_listing(values: Sequence[Any], type_: pa.DataType) -> Limit | None:
    """The same with the values themselves, in order."""
    limit = limit_between(values[0], values[-1], type_)
    listed = [text for value in values if (text := literal(value, type_)) is not None]
    # A list that leaves one out would leave its row in the table.
    return replace(limit, listed=tuple(listed)) if limit and len(listed) == len(values) else limit
