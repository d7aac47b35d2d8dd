"""Deleted positions in memory: exact, and bounded in bytes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.messages import LiveDeletes, LiveFile
from spark_jobs.tables import position_deletes
from spark_jobs.tables.data_files import file_io
from spark_jobs.tables.position_deletes import KeptDeletes, deleted_positions, keep_deletes

FILES = [f"file:///t/{name}.parquet" for name in "abc"]
ROWS = st.lists(st.tuples(st.sampled_from(FILES), st.integers(0, 50)), max_size=60, unique=True)


def _table(rows: list[tuple[str, int]]) -> pa.Table:
    paths, positions = [path for path, _ in rows], [position for _, position in rows]
    return pa.table(
        [pa.array(paths, pa.string()), pa.array(positions, pa.int64())], names=["file_path", "pos"]
    )


@given(ROWS)
def test_each_data_file_gets_its_own_positions(rows: list[tuple[str, int]]) -> None:
    """Whatever the order of the rows is: other writers may not sort them."""
    grouped = position_deletes._by_data_file(_table(rows))
    found = {(path, position) for path, some in grouped.items() for position in some.to_pylist()}
    assert found == set(rows)
    assert sum(map(len, grouped.values())) == len(rows)


def test_a_file_of_deletes_is_read_once_and_again_if_it_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(position_deletes, "_KEPT", KeptDeletes())
    path = tmp_path / "d.parquet"
    pq.write_table(_table([(FILES[1], 4), (FILES[0], 7), (FILES[1], 2)]), path)
    deletes = LiveDeletes(path=f"file://{path}", sequence=2)
    file = LiveFile(path=FILES[1], sequence=1, spec_id=0)

    def found(of: LiveFile) -> list[int]:
        return sorted(deleted_positions(file_io({}), [deletes], of).to_pylist())

    assert found(file) == [2, 4]
    assert found(file.model_copy(update={"path": FILES[2]})) == []
    assert found(file.model_copy(update={"sequence": 3})) == [], "the deletes are older than the file"
    path.unlink()
    assert found(file) == [2, 4]
    monkeypatch.setattr(position_deletes, "KEPT_BYTES_MAX", 0)
    keep_deletes("file:///other", _table([(FILES[0], 1)]))
    with pytest.raises(FileNotFoundError):
        found(file)


def test_many_batches_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deletes of a thousand batches of 10,000 updates were kept once, with a path for each row."""
    kept = KeptDeletes()
    monkeypatch.setattr(position_deletes, "_KEPT", kept)
    monkeypatch.setattr(position_deletes, "KEPT_BYTES_MAX", 2**20)
    before = pa.total_allocated_bytes()
    for number in range(200):
        keep_deletes(f"file:///{number}", _table([(FILES[0], row) for row in range(10_000)]))
    assert 0 < kept.bytes <= 2**20
    assert pa.total_allocated_bytes() - before <= 2 * 2**20
    assert kept.get("file:///199 None") is not None
    assert kept.get("file:///0 None") is None
