"""The comparison of two sides is equal to a plain one in Python."""

from __future__ import annotations

import math
import time
import uuid
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.errors import DeadlineExceeded
from query.tables.row_difference import NEW, OLD, comparison

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("ID", pa.string()),  # names that differ by case alone
        ("rate", pa.float64()),
        ("tags", pa.list_(pa.int32())),
        ("at", pa.timestamp("ns", "UTC")),
        ("mark", pa.uuid()),
    ]
)
NANOSECOND = 1_700_000_000_000_000_001
Row = tuple[Any, ...]

rows = st.tuples(
    st.none() | st.integers(0, 5),
    st.none() | st.sampled_from(["", "a", "b"]),
    st.none() | st.sampled_from([0.5, math.nan, math.inf]),
    st.none() | st.lists(st.none() | st.integers(0, 2), max_size=2),
    st.none() | st.sampled_from([NANOSECOND, NANOSECOND + 1]),
    st.none() | st.sampled_from([uuid.UUID(int=1).bytes, uuid.UUID(int=2).bytes]),
)
sides = st.lists(rows, max_size=12)


def _batches(side: list[Row]) -> list[pa.RecordBatch]:
    columns = [
        pa.array(
            [row[index] for row in side], field.type.storage_type if field.name == "mark" else field.type
        )
        for index, field in enumerate(SCHEMA)
    ]
    columns[-1] = pa.ExtensionArray.from_storage(pa.uuid(), columns[-1])
    batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    return [batch.slice(0, 5), batch.slice(5)] if side else []


def _compared(before: list[Row], after: list[Row], key: tuple[str, ...], limit: int = 100) -> dict[str, Any]:
    with comparison(SCHEMA, None) as compared:
        compared.fill(OLD, _batches(before))
        compared.fill(NEW, _batches(after))
        return compared.compared(key, limit)


def _plain(row: Row) -> str:
    return repr(row)  # NaN is equal to itself there


@settings(max_examples=40, deadline=None)
@given(sides, sides)
def test_by_key(before: list[Row], after: list[Row]) -> None:
    old, new = ({row[0]: row for row in side} for side in (before, after))
    found = _compared(list(old.values()), list(new.values()), ("id",))
    changed = sorted(
        (key for key in old.keys() & new.keys() if _plain(old[key]) != _plain(new[key])),
        key=lambda key: (key is None, key),
    )
    assert found["key"] == ["id"]
    assert found["added_count"] == len(new.keys() - old.keys())
    assert found["removed_count"] == len(old.keys() - new.keys())
    assert {row["id"] for row in found["added"]} == new.keys() - old.keys()
    assert {row["id"] for row in found["removed"]} == old.keys() - new.keys()
    assert [row["key"]["id"] for row in found["changed"]] == changed
    assert found["changed_count"] == len(changed)
    assert all(row["old"].keys() == row["new"].keys() != set() for row in found["changed"])


@settings(max_examples=40, deadline=None)
@given(sides, sides, st.integers(0, 4))
def test_as_a_whole(before: list[Row], after: list[Row], limit: int) -> None:
    found = _compared(before, after, (), limit)
    old, new = Counter(map(_plain, before)), Counter(map(_plain, after))
    added, removed = (new - old).total(), (old - new).total()
    assert (found["key"], found["added_count"], found["removed_count"]) == (None, added, removed)
    assert len(found["added"]) == min(added, limit)
    assert len(found["removed"]) == min(removed, limit)
    assert found["truncated"] == (max(added, removed) > limit)


def test_a_key_that_is_not_unique_is_no_key() -> None:
    row = (1, "a", None, None, None, None)
    assert _compared([row, row], [row], ("id",))["removed_count"] == 1


def test_values_stay_exact() -> None:
    mark = uuid.UUID(int=7).bytes
    found = _compared([], [(1, "a", 0.5, [1, None], NANOSECOND, mark)], ("id",))
    (row,) = found["added"]
    assert row["at"] == "2023-11-14T22:13:20.000000001Z"
    assert (row["tags"], row["ID"]) == ([1, None], "a")
    assert row["mark"] == "AAAAAAAAAAAAAAAAAAAABw=="


def test_it_ends_at_the_deadline() -> None:
    with (
        pytest.raises(DeadlineExceeded, match="request_timeout_s"),
        comparison(SCHEMA, time.monotonic()) as compared,
    ):
        compared.fill(OLD, _batches([(1, "a", None, None, None, None)]))
