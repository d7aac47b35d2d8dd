"""The columns that are compared, and how each dialect writes the text of a value. Pure.

The text of a value is the same in every dialect, and in the worker (spark_jobs/tables/checksums.py).
The table in docs/verification.md says what it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Dialect = Literal["postgresql", "mysql", "duckdb"]
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_ZERO = "0.0000000000000000e+00"

_TEXTS: dict[Dialect, dict[str, str]] = {
    "postgresql": {
        "boolean": "{c}::text",
        "int": "{c}::bigint::text",
        "long": "{c}::bigint::text",
        "float": "{float}",
        "double": "{float}",
        "decimal": "{c}::numeric(38,{scale})::text",
        "date": "CASE WHEN isfinite({c}) THEN ({c} - DATE '1970-01-01')::text ELSE {c}::text END",
        "time": "(extract(epoch FROM {c}) * 1000000)::bigint::text",
        "timestamp": "(extract(epoch FROM {c}) * 1000000)::bigint::text",
        "timestamptz": "(extract(epoch FROM {c}) * 1000000)::bigint::text",
        "string": "{c}::text",
        "uuid": "{c}::text",
        "binary": "encode({c}, 'hex')",
        "fixed": "encode({c}, 'hex')",
    },
    "mysql": {
        "boolean": "IF({c} IS NULL, NULL, IF({c}, 'true', 'false'))",
        "int": "CAST({c} AS CHAR)",
        "long": "CAST({c} AS CHAR)",
        "decimal": "CAST(CAST({c} AS DECIMAL({precision},{scale})) AS CHAR)",
        "date": "CAST(DATEDIFF({c}, '1970-01-01') AS CHAR)",
        "time": "CAST(CAST(FLOOR(TIME_TO_SEC({c})) AS SIGNED) * 1000000 + MICROSECOND({c}) AS CHAR)",
        "timestamp": "CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {c}) AS CHAR)",
        "timestamptz": "CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {c}) AS CHAR)",
        "string": "CONVERT({c} USING utf8mb4)",
        "uuid": "LOWER({c})",
        "binary": "LOWER(HEX({c}))",
        "fixed": "LOWER(HEX({c}))",
    },
    "duckdb": {
        "boolean": "{c}::VARCHAR",
        "int": "{c}::VARCHAR",
        "long": "{c}::VARCHAR",
        "float": "{float}",
        "double": "{float}",
        "decimal": "{c}::VARCHAR",
        "date": "({c} - DATE '1970-01-01')::VARCHAR",
        "time": "epoch_us({c})::VARCHAR",
        "timestamp": "epoch_us({c})::VARCHAR",
        "timestamptz": "epoch_us({c})::VARCHAR",
        "string": "{c}",
        "uuid": "{c}::VARCHAR",
        "binary": "lower(hex({c}))",
        "fixed": "lower(hex({c}))",
    },
}
# 17 digits tell every double apart.
_FLOATS = {
    "postgresql": "CASE WHEN {d} = 'NaN' THEN 'NaN' WHEN {d} = 'Infinity' THEN 'Infinity' "
    "WHEN {d} = '-Infinity' THEN '-Infinity' WHEN {d} = 0 THEN '" + _ZERO + "' "
    "ELSE trim(to_char({d}, '9.9999999999999999EEEE')) END",
    "duckdb": "CASE WHEN isnan({d}) THEN 'NaN' WHEN isinf({d}) THEN if({d} > 0, 'Infinity', '-Infinity') "
    "WHEN {d} = 0 THEN '" + _ZERO + "' WHEN {d} IS NOT NULL THEN format('{{:.16e}}', {d}) END",
}


@dataclass(frozen=True, slots=True)
class Column:
    """`type` is Iceberg's. `source_type` is the source's name of the type, "" if it is not known."""

    name: str
    type: str
    source_type: str = ""

    @property
    def is_padded(self) -> bool:
        """A character(n) has blanks at its end or has not, as the producer sends it: they do not count."""
        return self.source_type == "bpchar"


def quoted(name: str, dialect: Dialect) -> str:
    mark = "`" if dialect == "mysql" else '"'
    return mark + name.replace(mark, mark * 2) + mark


def text_of(column: Column, dialect: Dialect) -> str | None:
    """SQL for the text of a value, null if it is null; None if the dialect cannot write it exactly."""
    kind, name = column.type.partition("(")[0].partition("[")[0], quoted(column.name, dialect)
    form = _TEXTS[dialect].get(kind)
    if form is None:
        return None
    if column.is_padded and kind == "string":
        return f"rtrim({name}, ' ')" if dialect == "duckdb" else f"rtrim({name}::text, ' ')"
    if form == "{float}":
        return _FLOATS[dialect].format(d=_double(name, column, dialect))
    found = _DECIMAL.fullmatch(column.type)
    precision, scale = found.groups() if found is not None else ("38", "0")
    return form.format(c=name, precision=precision, scale=scale)


def _double(name: str, column: Column, dialect: Dialect) -> str:
    if dialect == "duckdb":
        return f"{name}::DOUBLE"
    # Producers write a real as its shortest text; a double that is read from it is another number.
    if column.source_type == "float4" and column.type == "double":
        return f"{name}::text::float8"
    return f"{name}::float8"


_TEXT_TYPES = {"text", "varchar", "bpchar", "name", "citext", "json", "jsonb", "uuid", "xml", "enum"}
_MYSQL_WHOLE = {"tinyint(1)", "tinyint", "smallint", "mediumint", "int", "bigint", "year"}
_MYSQL_BYTES = {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"}
_COMPARABLE: dict[Dialect, dict[str, set[str]]] = {
    "postgresql": {
        "boolean": {"bool"},
        "int": {"int2", "int4", "int8"},
        "long": {"int2", "int4", "int8"},
        "float": {"float4"},
        "double": {"float4", "float8", "numeric"},
        "decimal": {"numeric", "int2", "int4", "int8"},
        "date": {"date"},
        "time": {"time"},
        "timestamp": {"timestamp"},
        "timestamptz": {"timestamptz"},
        "string": _TEXT_TYPES,
        "uuid": {"uuid"},
        "binary": {"bytea"},
        "fixed": {"bytea"},
    },
    "mysql": {
        "boolean": {"tinyint(1)"},
        "int": _MYSQL_WHOLE,
        "long": _MYSQL_WHOLE,
        "decimal": {"decimal", "bigint unsigned", *_MYSQL_WHOLE},
        "date": {"date"},
        "time": {"time"},
        "timestamp": {"datetime"},
        "timestamptz": {"timestamp"},
        "string": {"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set", "uuid"},
        "uuid": {"uuid", "char", "varchar"},
        "binary": _MYSQL_BYTES,
        "fixed": _MYSQL_BYTES,
    },
}


def why_not_compared(column: Column, dialect: Dialect) -> str | None:
    """Why a column of a source is left out; None if it is compared."""
    kind = column.type.partition("(")[0].partition("[")[0]
    if not column.source_type:
        return "the source does not have it"
    if column.source_type not in _COMPARABLE[dialect].get(kind, ()):
        return f"{column.source_type} at the source and {column.type} in the lake have no common text"
    return None
