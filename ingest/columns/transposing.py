"""Rows -> columns.

Going through all rows once for each column is slow where rows are many or wide: nothing of a row is left in
the processor's cache when its next column is wanted. So a few rows are taken apart at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any

from ingest.change import Row

ROWS_AT_A_TIME = 128
COLUMNS_AT_A_TIME = 64  # a wide table's values are not all listed at once

_Apart = Callable[[Row], tuple[Any, ...]]


def columns_of(rows: Sequence[Row], names: Sequence[str]) -> Iterator[list[Any]]:
    """The values of each of the columns, None where a row lacks it."""
    for first in range(0, len(names), COLUMNS_AT_A_TIME):
        yield from _some(rows, names[first : first + COLUMNS_AT_A_TIME])


def _some(rows: Sequence[Row], names: Sequence[str]) -> list[list[Any]]:
    if len(names) == 1:  # itemgetter would answer no tuple
        return [[row.get(names[0]) for row in rows]]
    apart: _Apart = itemgetter(*names)
    nulls: Row = dict.fromkeys(names)
    columns: list[list[Any]] = [[] for _ in names]
    for first in range(0, len(rows), ROWS_AT_A_TIME):
        taken = [row or nulls for row in rows[first : first + ROWS_AT_A_TIME]]
        try:
            values = list(map(apart, taken))
        except KeyError:
            values = [apart(nulls | row) for row in taken]
        for column, part in zip(columns, zip(*values, strict=True), strict=True):
            column.extend(part)
    return columns
