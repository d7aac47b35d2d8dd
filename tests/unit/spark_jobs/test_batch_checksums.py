"""The checksums that batches add up to are those of a scan of the mirror.

`TaskTable.land` compares them after each batch; here are the histories in which that is hard.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from spark_jobs.tables.batch_checksums import HashedColumns, hashed_columns
from spark_jobs.tables.data_files import file_io, read_rows
from tests.clients.pipeline_events import delete, insert, truncate, update
from tests.clients.pipeline_random import COLUMNS, RandomChanges
from tests.unit.spark_jobs.task_table import TaskTable, schema_of


def test_a_deleted_row_is_not_subtracted_again_when_its_key_returns(tmp_path: Path) -> None:
    table = TaskTable(tmp_path, COLUMNS)
    table.land(insert(id=1, name="a"), insert(id=2, name="b"))
    table.land(delete(id=1))
    table.land(insert(id=1, name="again"))
    table.land(delete(id=1), insert(id=1, name="third"))
    table.land(delete(id=9))
    assert sum(rows for rows, _ in table.sums.values()) == 2


def test_a_truncate_begins_anew(tmp_path: Path) -> None:
    table = TaskTable(tmp_path, COLUMNS)
    table.land(insert(id=1, name="a"), insert(id=2, name="b"))
    (result,) = table.land(truncate(), insert(id=1, name="c"))
    assert result.truncated
    table.land(update(id=1, name="d"), insert(id=2, name="e"))


@pytest.mark.parametrize("seed", range(12))
def test_random_histories_with_compaction_and_lost_key_files(tmp_path: Path, seed: int) -> None:
    dice, changes = random.Random(seed), RandomChanges(seed, keys=10)
    table = TaskTable(tmp_path, COLUMNS)
    for _ in range(8):
        table.land(*changes.batch(dice.choice([1, 5, 25])))
        if dice.random() < 0.3:
            compact(table)
        if dice.random() < 0.3:
            shutil.rmtree(tmp_path / "keys", ignore_errors=True)


def compact(table: TaskTable) -> None:
    """Rewrite the live rows of the first file, as a compaction does: its name has no mark."""
    if not table.files:
        return
    file = table.files[0]
    gone = [
        position
        for deletes in table.deletes
        for path, position in zip(*pq.read_table(deletes.path[7:]).to_pydict().values(), strict=True)
        if path == file.path
    ]
    source = pq.ParquetFile(file.path[7:])
    rows = source.read()
    alive = pc.invert(pc.is_in(pa.array(range(rows.num_rows)), pa.array(gone, pa.int64())))
    path = file.path.replace(".parquet", f"-compacted-{table.sequence}.parquet")
    pq.write_table(rows.filter(alive), path[7:])
    table.sequence += 1
    table.files[0] = file.model_copy(update={"path": path})
    assert read_rows(file_io({}), path, table.metadata, list(COLUMNS)).num_rows == rows.num_rows - len(
        set(gone)
    )


def test_every_change_of_the_columns_or_the_key_is_another_identity() -> None:
    columns = {"id": "long", "name": "string", "_at": "timestamptz"}
    one = hashed(columns)
    assert one.columns == ("id", "name")  # without the column that Calve adds
    others = [
        hashed({**columns, "more": "string"}),
        hashed({"id": "int", "name": "string"}),
        hashed({"name": "string", "id": "long"}),  # other field ids: the names were swapped
        hashed(columns, key=("name",)),
    ]
    assert len({one.identity, *(other.identity for other in others)}) == 5
    assert hashed({"id": "long", "name": "string"}).identity == one.identity


def test_a_type_that_may_change_its_text_is_not_hashed() -> None:
    assert hashed_columns(schema_of({"id": "long", "at": "timestamp_ns"}), ("id",), ()) is None


def hashed(columns: dict[str, str], key: tuple[str, ...] = ("id",)) -> HashedColumns:
    found = hashed_columns(schema_of(columns), key, ("_at",))
    assert found is not None
    return found
