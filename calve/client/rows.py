"""Rows and changes as requests to /cdc. Pure.

Plain rows go out in the format `rows`, each request with an Idempotency-Key of its own. Changes go out in the
format `native`, numbered by this client under a source name of its own. Either way the server recognises a
request that is sent again, so that a retry changes nothing.
"""

from __future__ import annotations

import base64
import itertools
import json
import math
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from datetime import time as time_of_day
from decimal import Decimal
from typing import Any

Row = Mapping[str, Any]

REQUEST_BYTES_MAX = 4 << 20
OPERATIONS = ("INSERT", "UPDATE", "DELETE", "TRUNCATE")


@dataclass(frozen=True, slots=True)
class Chunk:
    """The body of one request: NDJSON."""

    body: bytes
    count: int


def chunks(rows: Iterable[Row], bytes_max: int = REQUEST_BYTES_MAX) -> Iterator[Chunk]:
    """Rows as bodies of at most `bytes_max`, unless one row alone is larger."""
    lines: list[bytes] = []
    size = 0
    for row in rows:
        line = encoded(row)
        if lines and size + len(line) > bytes_max:
            yield Chunk(b"".join(lines), len(lines))
            lines, size = [], 0
        lines.append(line)
        size += len(line)
    if lines:
        yield Chunk(b"".join(lines), len(lines))


def encoded(row: Row) -> bytes:
    """One line of JSON. Decimals, dates, times and UUIDs become text, bytes become base64."""
    if not isinstance(row, Mapping):
        raise TypeError(f"a row is a dict of columns, not {type(row).__name__}")
    try:
        text = json.dumps(row, default=_value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    except ValueError as error:
        raise ValueError(f"{error}: JSON has no NaN and no infinity; send None, or text") from None
    return text.encode() + b"\n"


def _value(value: Any) -> Any:
    if isinstance(value, datetime | date | time_of_day):
        return value.isoformat()
    if isinstance(value, Decimal | uuid.UUID):
        return str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    if hasattr(value, "item"):  # a scalar of NumPy
        return value.item()
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def is_missing(value: Any) -> bool:
    """NaN and NaT, which data frames use for null."""
    return value is not None and (
        (isinstance(value, float) and math.isnan(value)) or type(value).__name__ in _MISSING
    )


_MISSING = ("NaTType", "NAType")


class Source:
    """The name of one client as a source of changes, and its count. Threads may share it."""

    def __init__(self, name: str | None = None) -> None:
        self.name = name or f"calve-client-{uuid.uuid4().hex}"
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def events(self, changes: Iterable[Row], key: Sequence[str] | None) -> list[dict[str, Any]]:
        """The changes with numbers that no other change of this source has, in order."""
        made = [_event(change, key) for change in changes]
        with self._lock:
            return [event | {"sequence": next(self._numbers)} for event in made]


def is_change(row: Row) -> bool:
    """Whether a dict is a change and not a plain row."""
    return "operation" in row and ("after" in row or "before" in row or set(row) == {"operation"})


def _event(change: Row, key: Sequence[str] | None) -> dict[str, Any]:
    operation = str(change.get("operation", "")).upper()
    if operation not in OPERATIONS:
        raise ValueError(f"operation must be one of {', '.join(OPERATIONS)}, not {change.get('operation')!r}")
    event: dict[str, Any] = {
        "operation": operation,
        "timestamp": change.get("timestamp", time.time_ns() // 1_000_000),
    }
    event |= {name: change[name] for name in ("before", "after", "metadata") if change.get(name) is not None}
    if key:
        event["metadata"] = {**event.get("metadata", {}), "primaryKey": list(key)}
    event["rowId"] = _row_id(change, operation, key)
    return event


def _row_id(change: Row, operation: str, key: Sequence[str] | None) -> str:
    if "rowId" in change or operation == "TRUNCATE":
        return str(change.get("rowId", ""))
    row = change.get("after") or change.get("before") or {}
    columns = list(key) if key else ["id"]
    missing = [column for column in columns if column not in row]
    if missing:
        raise ValueError(
            f"the {operation.lower()} has no {', '.join(missing)}: give key=[...], or these columns"
        )
    values = [row[column] for column in columns]
    return str(values[0]) if len(values) == 1 else json.dumps(values, default=_value)
