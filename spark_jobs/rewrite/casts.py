"""Build the Spark SQL that casts a column to another type, and the SQL that tests whether a value survives
it. Pure.

Types are written as in an Iceberg schema. If a value does not fit the new type, the result of `cast` is null
or wrong, and `fits` is false. The time zone of the session is UTC, and text without a zone is UTC, as in
staging.
"""

from __future__ import annotations

import re

from spark_jobs.messages import BadJob

DOUBLE_DIGITS = 15  # a decimal number with at most this many digits survives a conversion to double and back
EXACT_LONG = 2**53  # every integer up to this is exact as a double

_SQL_TYPES = {
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    "string": "STRING",
    "uuid": "STRING",
    "date": "DATE",
    "timestamp": "TIMESTAMP_NTZ",
    "timestamptz": "TIMESTAMP",
}
_NUMBER = r"^[+-]?([0-9]+\\.?[0-9]*|\\.[0-9]+)$"
_TIME = r"[ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\\.[0-9]{1,6})?)?(Z|[+-][0-9]{2}:?[0-9]{2})?"
_TEXTS = {
    "int": r"^[+-]?[0-9]+$",
    "long": r"^[+-]?[0-9]+$",
    "date": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
    "timestamp": rf"^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}({_TIME})?$",
    "timestamptz": rf"^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}({_TIME})?$",
    "boolean": "^(?i:true|false|t|f|1|0)$",
    "uuid": "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$",
}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")


def sql_type(type_: str) -> str:
    found = _DECIMAL.fullmatch(type_)
    if found:
        return f"DECIMAL({found[1]},{found[2]})"
    if type_ not in _SQL_TYPES:
        raise BadJob(f"a column cannot be converted to or from {type_}")
    return _SQL_TYPES[type_]


def cast(column: str, from_: str, to: str) -> str:
    """Return the SQL of the value in its new type; `column` is SQL."""
    wanted = sql_type(to)
    if to == "string":
        return _text(column, from_)
    if from_ == "string" and to in ("timestamp", "timestamptz"):
        instant = f"TRY_CAST({column} AS TIMESTAMP)"  # the zone offset in a text is applied for both types
        return instant if to == "timestamptz" else f"CAST({instant} AS TIMESTAMP_NTZ)"
    if to == "uuid":
        return f"LOWER({column})"
    if from_ == "float" and wanted.startswith("DECIMAL"):
        # the digits of the value itself, not those of the nearest double
        return f"TRY_CAST(CAST({column} AS STRING) AS {wanted})"
    return f"TRY_CAST({column} AS {wanted})"


def _text(column: str, from_: str) -> str:
    text = f"CAST({column} AS STRING)"
    if from_ == "timestamp":
        return f"REPLACE({text}, ' ', 'T')"
    return f"CONCAT(REPLACE({text}, ' ', 'T'), 'Z')" if from_ == "timestamptz" else text


def fits(column: str, from_: str, to: str) -> str:
    """Return SQL that is true if a value that is not null is the same in its new type."""
    value = cast(column, from_, to)
    if to == "string" or (from_, to) == ("int", "double"):
        return "true"
    if from_ == "string":
        return f"({_text_fits(column, to)} AND {value} IS NOT NULL)"
    if (from_, to) == ("long", "double"):
        return f"({column} BETWEEN -{EXACT_LONG} AND {EXACT_LONG})"
    if to == "boolean":
        return f"({column} IN (0, 1))"
    back = sql_type(from_)
    return f"(TRY_CAST({value} AS {back}) <=> {column})"


def _text_fits(column: str, to: str) -> str:
    if to in _TEXTS:
        return f"{column} RLIKE '{_TEXTS[to]}'"
    found = _DECIMAL.fullmatch(to)
    if found:
        # More digits would be rounded without an error.
        scale = int(found[2])
        return rf"{column} RLIKE '^[+-]?[0-9]*(\\.[0-9]{{0,{scale}}}0*)?$' AND {column} RLIKE '[0-9]'"
    digits = f"LENGTH(REGEXP_REPLACE(REGEXP_REPLACE({column}, '[^0-9]', ''), '^0+', ''))"
    digits_max = DOUBLE_DIGITS if to == "double" else 6
    return f"{column} RLIKE '{_NUMBER}' AND {digits} <= {digits_max}"
