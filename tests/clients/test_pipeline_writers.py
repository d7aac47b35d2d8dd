"""Only Spark tasks write the files of a batch, whatever its size."""

from __future__ import annotations

import os
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from spark_jobs.landing import landing_job, planning, task
from spark_jobs.messages import ItemResult, WorkItem
from tests.clients import pyiceberg_client
from tests.clients.pipeline_events import delete, insert, update
from tests.clients.pipeline_fixtures import Checked, pipeline, pipeline_slots
from tests.clients.pipeline_lake import PipelineLake

__all__ = ["pipeline", "pipeline_slots"]
# PySpark leaves the socket that rows came through to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
COLUMNS = {"id": "long", "name": "string"}


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> list[ItemResult]:
    """What tasks answered. This process, the driver, must create no file and read no staged row: tasks run in
    processes of their own, where these patches do not hold.
    """
    found: list[ItemResult] = []

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("the driver writes a file, or reads rows")

    run_tasks = landing_job._Try._run_tasks

    def noted(self: Any, items: list[WorkItem]) -> list[ItemResult]:
        answered = run_tasks(self, items)
        found.extend(answered)
        return answered

    monkeypatch.setattr(landing_job._Try, "_run_tasks", noted)
    monkeypatch.setattr(PyArrowFileIO, "new_output", refuse)
    monkeypatch.setattr(task, "staged_share", refuse)
    return found


@pytest.mark.parametrize(("stack", "tasks"), [("embedded", 1), ("postgres-s3", 3)], indirect=["stack"])
def test_every_data_and_delete_file_is_written_by_a_task(
    pipeline: PipelineLake, results: list[ItemResult], monkeypatch: pytest.MonkeyPatch, tasks: int
) -> None:
    monkeypatch.setattr(planning, "TASK_ROWS_MAX", -(-30 // tasks))
    table = Checked(pipeline.table(COLUMNS))
    land = [insert(id=n, name="a") for n in range(30)]
    described = table.table.described(land)
    monkeypatch.setattr(pq, "write_table", lambda *_, **__: pytest.fail("the driver writes Parquet"))
    monkeypatch.setattr(pq, "ParquetWriter", lambda *_, **__: pytest.fail("the driver writes Parquet"))
    pipeline.run([described])
    monkeypatch.undo()
    first = len(results)
    assert first == tasks
    table.table.made = True
    table.model.land(land)
    table.check()
    _require_named(pipeline, table, results)


def test_one_job_has_the_tasks_of_all_tables(pipeline: PipelineLake, results: list[ItemResult]) -> None:
    tables = [Checked(pipeline.table(COLUMNS)) for _ in range(3)]
    for number in range(2):
        batch = [insert(id=number, name="a"), update(id=0, name="b"), delete(id=9)]
        pipeline.run([table.table.described(batch) for table in tables])
        for table in tables:
            table.table.made = True
            table.model.land(batch)
            table.check()
    assert len(results) == 6
    for table in tables:
        _require_named(pipeline, table, results)


def _require_named(pipeline: PipelineLake, table: Checked, results: list[ItemResult]) -> None:
    """Each file of the table, deletes included, is one that a task says it wrote, in a process of its own."""
    told = {path: result for result in results for path in result.paths}
    for name in (table.table.name, f"{table.table.name}__changes"):
        known = pyiceberg_client.catalog(pipeline.stack).load_table((pipeline.namespace, name))
        paths = known.inspect.all_files().column("file_path").to_pylist()
        assert paths
        for path in paths:
            result = told[path]
            assert result.pid != os.getpid()
            assert path.rpartition("/")[2].startswith(f"{result.attempt:05d}-")
            assert result.attempt >= 0
