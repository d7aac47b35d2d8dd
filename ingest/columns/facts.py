"""What is known of each change besides its row, as Arrow arrays: operation, time, source, position,
transaction, event id, and the row as it was before.

Most facts are the same in a whole batch, or simple numbers: such a column is made in one step. The others are
made value by value.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ingest.change import Change
from ingest.columns.json_text import json_text, json_texts
from ingest.columns.temporal import LONG_END
from ingest.columns.unfit import Misfit

_TIME = pa.timestamp("us", tz="UTC")
_TIME_MS_MAX = LONG_END // 1_000 - 1


def facts(changes: Sequence[Change], fallback_ids: Sequence[str]) -> dict[str, pa.Array]:
    """`fallback_ids[row]` names an event that has neither identity nor number."""
    return {
        "operation": texts([change.operation for change in changes]),
        "source_timestamp": times([change.time_ms for change in changes]),
        "source": texts([change.source for change in changes]),
        "position": texts([change.position for change in changes]),
        "transaction": texts([change.transaction for change in changes]),
        "event_id": event_ids(changes, fallback_ids),
    }


def times(times_ms: list[int | None]) -> pa.Array:
    try:
        numbers = pa.array(times_ms, pa.int64())
        ends = pc.min_max(numbers).as_py()
        if (ends["min"] or 0) >= -_TIME_MS_MAX and (ends["max"] or 0) <= _TIME_MS_MAX:
            return pc.multiply(numbers, 1_000).cast(_TIME)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        pass
    return pa.array([_time_us(time_ms) for time_ms in times_ms], _TIME)


def _time_us(time_ms: int | None) -> int | None:
    """A clock that is beyond all time says nothing."""
    return None if time_ms is None or abs(time_ms) > _TIME_MS_MAX else int(time_ms) * 1_000


def event_ids(changes: Sequence[Change], fallback_ids: Sequence[str]) -> pa.Array:
    identities: list[str | None] = [change.identity for change in changes]
    if all(identities):
        return texts(identities)
    numbered = None if any(identities) else _numbered(changes)
    if numbered is not None:
        return numbered
    return texts([_event_id(change, row, fallback_ids) for row, change in enumerate(changes)])


def _numbered(changes: Sequence[Change]) -> pa.Array | None:
    """`source:number` of each, if they are all numbers of one source."""
    numbers, sources = [change.number for change in changes], [change.source for change in changes]
    if set(map(type, numbers)) != {int} or sources.count(sources[0]) != len(sources):
        return None
    try:
        digits = pa.array(numbers, pa.int64()).cast(pa.string())
        return pc.binary_join_element_wise(pa.scalar(sources[0], pa.string()), digits, ":")
    except (OverflowError, UnicodeEncodeError):
        return None


def _event_id(change: Change, row: int, fallback_ids: Sequence[str]) -> str | None:
    if change.identity:
        return change.identity
    if change.number is not None:
        return f"{change.source}:{change.number}"
    return fallback_ids[row] if fallback_ids else None


def texts(values: Sequence[str | None]) -> pa.Array:
    """Facts about a change are no reason to refuse it: what is not Unicode becomes an escape."""
    size = len(values)
    if size and values[0] == values[-1] and values.count(values[0]) == size:
        return pa.repeat(texts_one_by_one(values[:1])[0], size)
    return texts_one_by_one(values)


def texts_one_by_one(values: Sequence[str | None]) -> pa.Array:
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:
        safe = [None if v is None else v.encode("utf-8", "backslashreplace").decode() for v in values]
        return pa.array(safe, pa.string())


def before(changes: Sequence[Change], rejects: dict[int, str]) -> pa.Array:
    """JSON of the rows as they were. One that cannot be written is a reject."""
    rows = [change.before for change in changes]
    if not any(rows) and rows.count(None) == len(rows):
        return pa.nulls(len(rows), pa.string())
    written = json_texts(rows)
    return pa.array(_before_one_by_one(changes, rejects) if written is None else written, pa.string())


def _before_one_by_one(changes: Sequence[Change], rejects: dict[int, str]) -> list[str | None]:
    found: list[str | None] = []
    for row, change in enumerate(changes):
        text = None
        if change.before is not None:
            try:
                text = json_text(change.before)
            except Misfit as refused:
                rejects.setdefault(row, f"the row as it was before cannot be kept: {refused}")
        found.append(text)
    return found
