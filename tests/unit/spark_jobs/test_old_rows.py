"""Deleted positions: split by data file once, and kept within a bound."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_jobs.landing import old_rows
from spark_jobs.landing.old_rows import deleted_positions, save_deletes
from spark_jobs.messages import LiveDeletes, LiveFile
from spark_jobs.tables.data_files import file_io


def positions(*pairs: tuple[str, int]) -> pa.Table:
    paths, found = zip(*pairs, strict=True)
    return pa.table({"file_path": pa.array(paths, pa.string()), "pos": pa.array(found, pa.int64())})


def data_file(path: str, sequence: int = 1) -> LiveFile:
    return LiveFile(path=path, sequence=sequence, spec_id=0, partition=())


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> old_rows._KnownDeletes:
    found = old_rows._KnownDeletes()
    monkeypatch.setattr(old_rows, "_KNOWN", found)
    return found


@pytest.mark.parametrize("is_saved", [True, False], ids=["just written", "read"])
def test_each_data_file_gets_its_own_positions(tmp_path: Path, is_saved: bool) -> None:
    path = f"{tmp_path}/deletes.parquet"
    table = positions(("b", 7), ("a", 3), ("b", 1), ("a", 3))
    pq.write_table(table, path)
    if is_saved:
        save_deletes(path, table)
    deletes = [LiveDeletes(path=path, sequence=2)]
    found = {one: deleted_positions(file_io({}), deletes, data_file(one)).to_pylist() for one in "abc"}
    assert {one: sorted(of_file) for one, of_file in found.items()} == {"a": [3, 3], "b": [1, 7], "c": []}


def test_deletes_hold_for_no_newer_data_file() -> None:
    save_deletes("d", positions(("a", 3)))
    deletes = [LiveDeletes(path="d", sequence=2)]
    assert deleted_positions(file_io({}), deletes, data_file("a", sequence=3)).to_pylist() == []


def test_the_oldest_files_are_forgotten_beyond_the_bound(
    known: old_rows._KnownDeletes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(old_rows, "POSITIONS_KEPT", 3)
    for name in ("first", "second"):
        save_deletes(name, positions(("a", 1), ("b", 1)))
    assert known.get("first None") is None
    assert known.get("second None") is not None
    save_deletes("large", positions(*(("a", place) for place in range(5))))
    assert known.get("second None") is None
    assert known.get("large None") is not None, "a file beyond the bound is kept until the next one"
