"""Read columns of staged rows as Python values. Pure, over Arrow."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.types as pat

from spark_jobs.landing.value_sources import Key
from spark_jobs.messages import STAGED


def texts(table: pa.Table, name: str) -> list[str]:
    return [value or "" for value in table.column(f"{STAGED}{name}").to_pylist()]


def keys_of(table: pa.Table, columns: Sequence[str]) -> list[Key | None]:
    """Return the keys as tuples, None where they are null. Dates and timestamps are numbers, because Python's
    calendar is shorter than Arrow's.
    """
    if not columns:
        return [()] * table.num_rows
    values = zip(*(_plain(table.column(column)).to_pylist() for column in columns), strict=True)
    return [None if None in key else key for key in values]


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pat.is_timestamp(column.type):
        return column.cast(pa.int64())
    return column.cast(pa.int32()) if pat.is_date32(column.type) else column
