"""Work items without Spark: after each batch the files of the table hold what the model holds."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import parse_transform

from tests.clients.pipeline_events import delete, insert, update
from tests.clients.pipeline_random import COLUMNS, RandomChanges
from tests.clients.pipeline_random_tables import RandomTable
from tests.unit.spark_jobs.task_table import TaskTable


def test_rows_are_replaced_by_position(tmp_path: Path) -> None:
    table = TaskTable(tmp_path, COLUMNS)
    table.land(insert(id=1, name="a", big="A"), insert(id=2, name="b"), insert(id=3, name="c"))
    (result,) = table.land(
        update("big", id=1, name="a2"), delete(id=2), delete(id=99), insert(id=4, name="d"), delete(id=4)
    )
    assert (result.rows, result.deleted, result.attempt) == (4, 2, -1)
    table.land(update("big", id=2, name="b again"), update("big", id=1, name="a3"))
    assert len(table.deletes) == 2
    assert [row["_operation"] for row in table.history].count("delete") == 3


def test_random_batches(tmp_path: Path) -> None:
    for seed in range(8):
        dice, changes = random.Random(seed), RandomChanges(seed, keys=12)
        table = TaskTable(tmp_path, COLUMNS)
        for size in (30, 60, 5, 20):
            table.land(*changes.batch(size), shares=1)
            if dice.random() < 0.4:
                shutil.rmtree(tmp_path / "keys")


def _spec(table: RandomTable) -> PartitionSpec:
    ids = {column: number for number, column in enumerate(table.columns, 1)}
    parts = [
        PartitionField(ids[column], 1000 + number, parse_transform(transform), f"p{number}")
        for number, (column, transform) in enumerate(table.partition)
    ]
    return PartitionSpec(*parts)


@pytest.mark.parametrize("seed", range(36))
def test_random_tables(tmp_path: Path, seed: int) -> None:
    """Types, composite keys, partitions; batches cut at random, in shares; key files deleted at random."""
    given, dice = RandomTable(seed), random.Random(seed)
    table = TaskTable(tmp_path, given.columns, given.key, _spec(given))
    for _ in range(6):
        batch = given.batch(dice.choice([1, 10, 60]))
        spans_keys = any(event.root is not None for event in batch) and any(event.absent for event in batch)
        table.land(*batch, shares=1 if spans_keys else dice.choice([1, 2, 3]))
        if dice.random() < 0.4:
            for file in (tmp_path / "keys").iterdir():
                if dice.random() < 0.7:
                    file.unlink()


def test_a_row_that_is_deleted_is_not_deleted_again(tmp_path: Path) -> None:
    """The totals of a snapshot would count it twice, and the number of rows that they show would be wrong."""
    table = TaskTable(tmp_path, COLUMNS)
    turns = [
        insert(id=1, name="a"),
        delete(id=1),
        insert(id=1, name="b"),
        delete(id=1),
        insert(id=1, name="c"),
    ]
    deleted = [table.land(turn)[0].deleted for turn in turns]
    assert deleted == [0, 1, 0, 1, 0]
    assert len(table.deletes) == 2
