"""Rows to columns, whatever the rows lack."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.staging.arrow_table import COLUMNS_AT_A_TIME, ROWS_AT_A_TIME, columns_of

NAMES = [f"c{number}" for number in range(150)]


@given(
    st.lists(st.dictionaries(st.sampled_from("abcd"), st.none() | st.integers())),
    st.lists(st.sampled_from("abc"), unique=True),
)
def test_a_column_is_what_each_row_has_of_it(rows: list[dict[str, Any]], names: list[str]) -> None:
    assert list(columns_of(rows, names)) == [[row.get(name) for row in rows] for name in names]


@pytest.mark.parametrize("width", [1, 64, 65, 128, 150])
@pytest.mark.parametrize("count", [0, 1, 128, 129, 300])
def test_more_than_is_taken_at_a_time(width: int, count: int) -> None:
    names = NAMES[:width]
    rows = [{name: (row, name) for name in names} for row in range(count)]
    for row in rows[5::130]:
        del row[names[-1]]
    assert max(ROWS_AT_A_TIME, COLUMNS_AT_A_TIME) < 150
    assert list(columns_of(rows, names)) == [[row.get(name) for row in rows] for name in names]
