"""Where rows stand, against a plain dict."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_jobs import key_index, key_indexes
from spark_jobs.key_index import KeyIndex
from spark_jobs.key_indexes import KeyIndexes, state_of

BATCHES = st.lists(
    st.lists(st.tuples(st.integers(0, 12), st.booleans()), unique_by=lambda p: p[0]), max_size=8
)


def _keys(keys: list[Any], type_: pa.DataType) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(keys[:3], type_), pa.array(keys[3:], type_)])


@pytest.mark.parametrize(
    ("noted_max", "rows_per_key"),
    [(0, -1), (5, -1), (1_000, -1), (5, 2), (1_000, 100)],
    ids=["few-none noted", "few-some noted", "few-all noted", "either", "many"],
)
@pytest.mark.parametrize("type_", [pa.int32(), pa.int64(), pa.string(), pa.date32()], ids=str)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(batches=BATCHES)
def test_it_follows_every_batch(
    batches: list[list[tuple[int, bool]]],
    type_: pa.DataType,
    noted_max: int,
    rows_per_key: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(key_index, "NOTED_MAX", noted_max)
    monkeypatch.setattr(key_index, "ROWS_PER_KEY", rows_per_key)
    index, model = KeyIndex.empty(type_), dict[int, tuple[str, int]]()

    def of(keys: list[int]) -> pa.ChunkedArray:
        values: list[Any] = [f"k\N{GREEK SMALL LETTER ALPHA}{key}" for key in keys]
        return _keys(values if type_ == pa.string() else keys, type_)

    for number, batch in enumerate(batches):
        asked, kept = [key for key, _ in batch], [key for key, is_kept in batch if is_kept]
        positions = index.positions(of(asked))
        expected = sorted(model[key] for key in asked if key in model)
        assert list(zip(*positions.to_pydict().values(), strict=True)) == expected
        index.follow(of(asked), f"file-{number}" if kept else None, of(kept))
        model = {key: place for key, place in model.items() if key not in asked}
        model |= {key: (f"file-{number}", place) for place, key in enumerate(kept)}


def test_a_scan_is_taken_as_it_is() -> None:
    index = KeyIndex(
        pa.array(["b", "a", "c"]), pa.array([1, 0, 0], pa.int32()), pa.array([0, 4, 1]), ["f1", "f2"]
    )
    positions = index.positions(pa.chunked_array([["c", "a", "nobody"]]))
    assert positions.to_pydict() == {"file_path": ["f1", "f1"], "pos": [1, 4]}
    assert index.size_bytes > 0


@pytest.mark.parametrize("rows_per_key", [-1, 100], ids=["few", "many"])
@pytest.mark.parametrize("keys", [["a", "b", "a"], [7, 9, 7]])
def test_rows_that_somebody_else_wrote_twice_are_all_found(
    keys: list[Any], rows_per_key: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_index, "ROWS_PER_KEY", rows_per_key)
    index = KeyIndex(pa.array(keys), pa.array([0, 0, 0], pa.int32()), pa.array([0, 1, 2]), ["f"])
    assert index.positions(pa.chunked_array([keys[:1]])).column("pos").to_pylist() == [0, 2]


def test_an_index_is_believed_for_its_snapshot_alone() -> None:
    indexes, index = KeyIndexes(), KeyIndex.empty(pa.int64())
    indexes.put(("main", "t"), ("uuid", 7), index)
    assert indexes.get(("main", "t"), ("uuid", 7)) is index
    assert indexes.get(("main", "t"), ("uuid", 8)) is None
    assert indexes.get(("main", "t"), ("other", 7)) is None
    assert indexes.get(("main", "u"), ("uuid", 7)) is None


def test_those_not_used_for_long_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = pa.array(range(100), pa.int64())
    large = KeyIndex(numbers, numbers, numbers, [])
    monkeypatch.setattr(key_indexes, "BYTES_IN_ALL_MAX", large.size_bytes * 5 // 2)
    indexes = KeyIndexes()
    for name in ("a", "b"):
        indexes.put((name,), 0, large)
    assert indexes.get(("a",), 0) is large
    indexes.put(("c",), 0, large)
    assert [indexes.get((name,), 0) for name in ("a", "b", "c")] == [large, None, large]


def test_no_snapshot_is_a_state_too() -> None:
    assert state_of({"table-uuid": "u"}) == ("u", None)
    assert state_of({"table-uuid": "u", "current-snapshot-id": -1}) == ("u", None)
    assert state_of({"table-uuid": "u", "current-snapshot-id": 5}) == ("u", 5)
