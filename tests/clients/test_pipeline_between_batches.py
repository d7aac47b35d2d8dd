"""Random histories of random tables, with compaction, expiry and an outside engine between the batches.

After each publish the mirror equals the model, as PyIceberg, DuckDB and Spark read it. The outside engine is
Spark SQL: it writes rows and rolls the table back, or replaces all files by its own with the same rows. Key
files are deleted at random.
"""

from __future__ import annotations

import datetime as dt
import itertools
import random
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.landing import planning
from spark_jobs.messages import KeyFileSettings
from tests.clients.duckdb_client import DuckLake
from tests.clients.pipeline_fixtures import Checked, by_key, pipeline, pipeline_slots
from tests.clients.pipeline_lake import PipelineLake
from tests.clients.pipeline_random_tables import RandomTable
from tests.clients.spark_client import SparkLake
from tests.clients.test_pipeline_tables import maintained

__all__ = ["pipeline", "pipeline_slots"]
# PySpark leaves the socket that rows came through to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.mark.parametrize(
    ("stack", "seed", "version"),
    [("embedded", 6, 2), ("postgres-s3", 8, 3)],
    indirect=["stack"],
)
def test_the_mirror_equals_the_model_whatever_comes_between(
    history: Callable[[int, int, int], None], seed: int, version: int
) -> None:
    history(seed, version, 4)


@pytest.mark.proof
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(200, 224))
@pytest.mark.parametrize("version", [2, 3])
def test_many_histories(history: Callable[[int, int, int], None], seed: int, version: int) -> None:
    history(seed, version, 12)


@pytest.fixture
def history(
    pipeline: PipelineLake,
    duck: DuckLake,
    spark_lake: SparkLake,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Callable[[int, int, int], None]:
    """Runs a history of some batches of the table of a seed."""
    keys = tmp_path / "keys"
    monkeypatch.setattr(pipeline.slot.landing, "key_files", KeyFileSettings(folder=str(keys)))
    monkeypatch.setattr(planning, "TASK_ROWS_MAX", 25)

    def run(seed: int, version: int, batches: int) -> None:
        given, dice = RandomTable(seed), random.Random(seed)
        partition = [{"source": column, "transform": transform} for column, transform in given.partition]
        made = pipeline.table(given.columns, given.key, partition=partition, format_version=version)
        table, between = Checked(made), Between(pipeline, spark_lake, made.name)
        actions = itertools.cycle(dice.sample(between.actions, len(between.actions)))
        for _, action in zip(range(batches), actions, strict=False):
            assert table.land(*given.batch(dice.choice([1, 10, 60])))["by"] == "tasks"
            table.check_by_duckdb(duck)
            assert by_key(between.rows(made.columns), made.key) == by_key(made.mirror(), made.key)
            action()
            table.check()
            for file in keys.iterdir():
                if dice.random() < 0.5:
                    file.unlink()

    return run


class Between:
    """What happens to a mirror between two batches. None of it changes its rows."""

    def __init__(self, pipeline: PipelineLake, lake: SparkLake, name: str) -> None:
        self._pipeline = pipeline
        self._lake = lake
        self._name = name
        self._catalog = lake.catalog()
        self.actions: tuple[Callable[[], object], ...] = (
            self.compact,
            self.expire,
            self.write_and_roll_back,
            self.replace_all_files,
        )

    def compact(self) -> None:
        for name in (self._name, f"{self._name}__changes"):
            maintained(self._pipeline, name, small_files_min=2, delete_files_max=1)

    def expire(self) -> None:
        """All snapshots but the current one, with the files that only they need."""
        now = dt.datetime.now(dt.UTC).isoformat(sep=" ")
        self._call("expire_snapshots", f"older_than => TIMESTAMP '{now}', retain_last => 1")

    def write_and_roll_back(self) -> None:
        before = self._snapshot()
        if before is None:
            return
        self._sql(f"INSERT INTO {self._spark_name} SELECT * FROM {self._spark_name}")
        self._call("rollback_to_snapshot", f"snapshot_id => {before}")

    def replace_all_files(self) -> None:
        self._sql(f"CREATE OR REPLACE TEMPORARY VIEW kept AS SELECT * FROM {self._spark_name}")
        self._sql(f"INSERT OVERWRITE {self._spark_name} SELECT * FROM kept")
        self._sql("DROP VIEW kept")

    def rows(self, columns: dict[str, str]) -> list[dict[str, Any]]:
        """All rows as Spark SQL shows them, with the values that PyIceberg shows."""
        names = ", ".join(f"`{column}`" for column in columns)
        return [
            {
                column: _value(value, type_)
                for (column, type_), value in zip(columns.items(), row, strict=True)
            }
            for row in self._sql(f"SELECT {names} FROM {self._spark_name}")
        ]

    @property
    def _spark_name(self) -> str:
        return f"{self._catalog}.`{self._pipeline.namespace}`.`{self._name}`"

    def _sql(self, text: str) -> list[tuple[Any, ...]]:
        return self._lake.sql(text)

    def _call(self, procedure: str, arguments: str) -> None:
        table = f"table => '{self._pipeline.namespace}.{self._name}'"
        self._sql(f"CALL {self._catalog}.system.{procedure}({table}, {arguments})")

    def _snapshot(self) -> int | None:
        metadata = self._pipeline.rest.load(self._pipeline.namespace, self._name)["metadata"]
        found: int | None = metadata.get("current-snapshot-id")
        return found


def _value(value: Any, type_: str) -> Any:
    if value is None:
        return None
    if type_ == "uuid":
        return uuid.UUID(value)
    if type_ == "timestamptz":
        return value.astimezone(dt.UTC)
    return bytes(value) if isinstance(value, bytearray) else value
