"""Random histories of random tables: tasks and MERGE make the same of them, and it is what the model says.

Types, composite keys and partitions are random, batches are cut at random, and key files are deleted at
random.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.landing import planning
from spark_jobs.messages import KeyFileSettings, TableState
from spark_jobs.tables.table_state import NotServed, TableStates
from tests.clients.pipeline_fixtures import Checked, pipeline, pipeline_slots
from tests.clients.pipeline_lake import PipelineLake
from tests.clients.pipeline_random_tables import RandomTable

__all__ = ["pipeline", "pipeline_slots"]
# PySpark leaves the socket that rows came through to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture
def key_files(pipeline: PipelineLake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder of the test's own, so that it can delete what it likes."""
    folder = tmp_path / "keys"
    monkeypatch.setattr(pipeline.slot.landing, "key_files", KeyFileSettings(folder=str(folder)))
    return folder


@pytest.mark.parametrize(
    ("stack", "seed", "version"),
    [("embedded", 3, 2), ("embedded", 22, 3), ("postgres-s3", 8, 2), ("postgres-s3", 8, 3)],
    indirect=["stack"],
)
def test_tasks_and_merge_agree_with_the_model(
    pipeline: PipelineLake, key_files: Path, monkeypatch: pytest.MonkeyPatch, seed: int, version: int
) -> None:
    _agree(pipeline, key_files, monkeypatch, seed, batches=4, version=version)


@pytest.mark.proof
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(100, 136))
@pytest.mark.parametrize("version", [2, 3])
def test_many_tables_agree(
    pipeline: PipelineLake, key_files: Path, monkeypatch: pytest.MonkeyPatch, seed: int, version: int
) -> None:
    _agree(pipeline, key_files, monkeypatch, seed, batches=10, version=version)


def _agree(
    pipeline: PipelineLake,
    key_files: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    *,
    batches: int,
    version: int,
) -> None:
    given, dice = RandomTable(seed), random.Random(seed)
    parts = [{"source": column, "transform": transform} for column, transform in given.partition]
    table = Checked(pipeline.table(given.columns, given.key, partition=parts, format_version=version))
    merged = pipeline.table(given.columns, given.key, partition=parts, format_version=version)
    _merge_only(monkeypatch, merged.name)
    monkeypatch.setattr(planning, "TASK_ROWS_MAX", 25)
    for _ in range(batches):
        batch = given.batch(dice.choice([1, 10, 60]))
        assert table.land(*batch)["by"] == "tasks"
        assert merged.land(*batch)["by"] == "merge"
        assert _comparable(merged.mirror()) == _comparable(table.table.mirror())
        assert _comparable(merged.changes()) == _comparable(table.table.changes())
        for file in key_files.iterdir() if key_files.exists() else ():
            if dice.random() < 0.5:
                file.unlink()


def _merge_only(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    served = TableStates.mirror

    def mirror(self: TableStates, given: str, *more: Any) -> TableState:
        if given == name:
            raise NotServed("a test wants MERGE")
        return served(self, given, *more)

    monkeypatch.setattr(TableStates, "mirror", mirror)


def _comparable(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)
