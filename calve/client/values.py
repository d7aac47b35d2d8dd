"""Values of JSON results as Python has them, so that rows are the same with and without pyarrow. Pure.

The server sends as text what JSON cannot hold exactly. Inside lists, structs and maps they stay so.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

_PARSERS: dict[str, Callable[[str], Any]] = {
    "DECIMAL": Decimal,
    "HUGEINT": int,
    "UHUGEINT": int,
    "FLOAT": float,  # NaN and the infinities
    "DOUBLE": float,
    "DATE": date.fromisoformat,
    "TIME": time.fromisoformat,
    "TIMESTAMP": datetime.fromisoformat,
    "TIMESTAMP_S": datetime.fromisoformat,
    "TIMESTAMP_MS": datetime.fromisoformat,
    "TIMESTAMP_NS": datetime.fromisoformat,
    "TIMESTAMP WITH TIME ZONE": datetime.fromisoformat,
    "BLOB": base64.b64decode,
    # Types of Iceberg, which table functions name.
    "decimal": Decimal,
    "float": float,
    "double": float,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timestamp": datetime.fromisoformat,
    "timestamptz": datetime.fromisoformat,
    "timestamp_ns": datetime.fromisoformat,
    "timestamptz_ns": datetime.fromisoformat,
    "binary": base64.b64decode,
}


def from_json(value: Any, type_: str) -> Any:
    """The value of a column of this type."""
    if not isinstance(value, str) or type_.endswith("]"):
        return value
    parser = _PARSERS.get(type_.partition("(")[0])
    return parser(value) if parser is not None else value
