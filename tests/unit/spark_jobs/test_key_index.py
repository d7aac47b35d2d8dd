"""Where rows stand, against a plain dict."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs import key_index
from spark_jobs.key_index import KeyIndex, KeyIndexes, state_of

BATCHES = st.lists(
    st.lists(st.tuples(st.integers(0, 12), st.booleans()), unique_by=lambda p: p[0]), max_size=8
)


def _empty(type_: pa.DataType = pa.int64()) -> KeyIndex:  # noqa: B008 - a constant
    return KeyIndex.of(
        pa.chunked_array([], type_), pa.chunked_array([], pa.string()), pa.chunked_array([], pa.int64())
    )


def _keys(keys: list[int]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(keys, pa.int64())])


@given(BATCHES)
def test_it_follows_every_batch(batches: list[list[tuple[int, bool]]]) -> None:
    index, model = _empty(), dict[int, tuple[str, int]]()
    for number, batch in enumerate(batches):
        positions, index = index.positions(_keys([key for key, _ in batch]))
        expected = sorted(model.pop(key) for key, _ in batch if key in model)
        assert list(zip(*positions.to_pydict().values(), strict=True)) == expected
        kept = [key for key, is_kept in batch if is_kept]
        index = index.with_file(f"file-{number}", _keys(kept))
        model |= {key: (f"file-{number}", place) for place, key in enumerate(kept)}
        assert len(index) == len(model)


def test_a_scan_is_taken_as_it_is() -> None:
    index = KeyIndex.of(
        pa.chunked_array([["a", "b"], ["c"]]),
        pa.chunked_array([["f1", "f2"], ["f1"]]),
        pa.chunked_array([pa.array([4, 0], pa.int64()), pa.array([1], pa.int64())]),
    )
    positions, rest = index.positions(pa.chunked_array([["c", "a", "nobody"]]))
    assert positions.to_pydict() == {"file_path": ["f1", "f1"], "pos": [1, 4]}
    assert len(rest) == 1


def test_an_index_is_believed_for_its_snapshot_alone() -> None:
    indexes, index = KeyIndexes(), _empty()
    indexes.put(("main", "t"), ("uuid", 7), index)
    assert indexes.get(("main", "t"), ("uuid", 7)) is index
    assert indexes.get(("main", "t"), ("uuid", 8)) is None
    assert indexes.get(("main", "t"), ("other", 7)) is None
    assert indexes.get(("main", "u"), ("uuid", 7)) is None


def test_those_not_used_for_long_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_index, "ROWS_IN_ALL_MAX", 250)
    indexes, large = KeyIndexes(), _empty().with_file("f", _keys(list(range(100))))
    for name in ("a", "b"):
        indexes.put((name,), 0, large)
    assert indexes.get(("a",), 0) is large
    indexes.put(("c",), 0, large)
    assert [indexes.get((name,), 0) for name in ("a", "b", "c")] == [large, None, large]


def test_no_snapshot_is_a_state_too() -> None:
    assert state_of({"table-uuid": "u"}) == ("u", None)
    assert state_of({"table-uuid": "u", "current-snapshot-id": -1}) == ("u", None)
    assert state_of({"table-uuid": "u", "current-snapshot-id": 5}) == ("u", 5)
