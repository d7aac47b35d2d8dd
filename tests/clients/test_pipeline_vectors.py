"""Tables of format version 3: their deletes are deletion vectors, one for each data file."""

from __future__ import annotations

from typing import Any

import pytest

from spark_jobs.landing import planning
from spark_jobs.session import attach
from tests.clients.duckdb_client import DuckLake
from tests.clients.pipeline_events import delete, insert, truncate, update
from tests.clients.pipeline_fixtures import Checked, pipeline, pipeline_slots
from tests.clients.pipeline_lake import PipelineLake, PipelineTable
from tests.clients.spark_client import s3_options

__all__ = ["pipeline", "pipeline_slots"]
# PySpark leaves the socket that rows came through to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
COLUMNS = {"id": "long", "name": "string"}


@pytest.mark.parametrize(("stack", "tasks"), [("embedded", 3), ("postgres-s3", 1)], indirect=["stack"])
def test_rows_are_replaced_and_deleted(
    pipeline: PipelineLake, duck: DuckLake, monkeypatch: pytest.MonkeyPatch, tasks: int
) -> None:
    """With several shares, two of them delete rows of the same data file."""
    table = Checked(pipeline.table(COLUMNS, format_version=3))
    facts = [table.land(*(insert(id=key, name="a") for key in range(60)))]
    monkeypatch.setattr(planning, "TASK_ROWS_MAX", -(-30 // tasks))
    for turn in range(3):
        keys = range(turn * 7, turn * 7 + 30)
        batch = [delete(id=key) if key % 5 == turn else update(id=key, name=f"b{turn}") for key in keys]
        facts.append(table.land(*batch))
    assert [fact["by"] for fact in facts] == ["tasks"] * 4
    assert [fact["deleted"] for fact in facts[1:]] == [30, 26, 25]
    vectors = _deletes(table.table)
    assert {row["format"] for row in vectors} == {"PUFFIN"}
    assert len({row["file"] for row in vectors}) == len(vectors), "a data file has one vector"
    table.check_by_duckdb(duck)
    assert _rows_by_spark(table.table) == sorted(
        (row["id"], row["name"]) for row in table.model.mirror.values()
    )


def test_values_that_a_change_leaves_out_come_from_living_rows(pipeline: PipelineLake) -> None:
    table = Checked(pipeline.table({"id": "long", "name": "string", "big": "string"}, format_version=3))
    table.land(insert(id=1, name="a", big="x"), insert(id=2, name="b", big="y"))
    table.land(update("big", id=1, name="c"), delete(id=2))
    table.land(update("big", id=1, name="d"), insert(id=2, name="again", big="z"))
    table.land(update("name", id=2, big="w"))
    table.land(truncate())
    table.land(insert(id=1, name="e", big="new"))


def _deletes(table: PipelineTable) -> list[dict[str, Any]]:
    spark, name = _session(table)
    found = spark.sql(f"SELECT file_format, referenced_data_file FROM {name}.delete_files").collect()
    return [{"format": row[0], "file": row[1]} for row in found]


def _rows_by_spark(table: PipelineTable) -> list[tuple[Any, ...]]:
    spark, name = _session(table)
    return sorted(tuple(row) for row in spark.sql(f"SELECT id, name FROM {name}").collect())


def _session(table: PipelineTable) -> tuple[Any, str]:
    spark = table.lake.slot.session.spark.newSession()
    attach(spark, "now", table.lake.stack.url, warehouse="main", s3=s3_options(table.lake.stack))
    return spark, f"now.`{table.lake.namespace}`.`{table.name}`"
