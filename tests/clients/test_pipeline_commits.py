"""How a batch is committed: which way it takes, what its snapshots say, what happens when others write."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from spark_jobs.landing import planning
from spark_jobs.landing.landing_job import TRIES_MAX, TaskFailed
from spark_jobs.messages import BadJob, Job
from spark_jobs.progress import Progress
from spark_jobs.server_client import LostLease, TableChange, TableChanged
from spark_jobs.session import attach
from spark_jobs.tables.commit import quoted, short_summary
from tests.clients import pyiceberg_client
from tests.clients.pipeline_events import delete, insert, update
from tests.clients.pipeline_fixtures import Checked, pipeline, pipeline_slots
from tests.clients.pipeline_lake import PipelineLake, PipelineTable, PlainServer
from tests.clients.pipeline_staged import STAMP_US
from tests.clients.spark_client import s3_options

__all__ = ["pipeline", "pipeline_slots"]
# PySpark leaves the socket that rows came through to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
COLUMNS = {"id": "long", "name": "string"}


def test_a_table_may_get_another_key(pipeline: PipelineLake) -> None:
    """The files of the former key may have several rows of a new one."""
    table = pipeline.table({"id": "long", "code": "long"}, has_changes=False)
    table.land(insert(id=1, code=10), insert(id=2, code=20))
    table.land(insert(id=3, code=20))
    table.key = ("code",)
    table.land(insert(id=7, code=20), insert(id=8, code=9))
    assert sorted((row["id"], row["code"]) for row in table.mirror()) == [(1, 10), (7, 20), (8, 9)]


def test_rows_of_another_writer_are_replaced_too(pipeline: PipelineLake) -> None:
    """Though a key then has rows in several files, and one of them is newer than ours."""
    table = Checked(pipeline.table(COLUMNS, has_changes=False))
    table.land(insert(id=1, name="a"), insert(id=2, name="b"))
    _foreign_row(table.table, 1)
    _foreign_row(table.table, 100)
    table.model.mirror[100,] = {"id": 100, "name": "foreign"}
    table.land(update(id=1, name="ours"), insert(id=3, name="c"))
    _foreign_row(table.table, 2)
    table.table.land(insert(id=4, name="d"), delete(id=1), update("name", id=100))
    table.table.land(delete(id=2))
    rows = {row["id"]: row["name"] for row in table.table.mirror()}
    assert rows == {3: "c", 4: "d", 100: "foreign"}


def test_a_row_is_deleted_once(pipeline: PipelineLake) -> None:
    """Also in a file of another writer, or of a compaction, which each later batch searches again."""
    table = pipeline.table(COLUMNS, has_changes=False)
    table.land(insert(id=2, name="b"))
    _foreign_row(table, 1)
    for name in ("first", "second", "third"):
        table.land(update(id=1, name=name))
    metadata = pipeline.rest.load(pipeline.namespace, table.name)["metadata"]
    summaries = [snapshot["summary"] for snapshot in metadata["snapshots"]]
    assert [summary["total-position-deletes"] for summary in summaries] == ["0", "0", "1", "2", "3"]
    assert {row["id"]: row["name"] for row in table.mirror()} == {1: "third", 2: "b"}


def test_snapshots_name_their_batch(pipeline: PipelineLake) -> None:
    table = pipeline.table(COLUMNS)
    table.land(insert(id=1, name="a"), job={"batch-id": "b-1"})
    table.land(update(id=1, name="b"), job={"batch-id": "b-2"})
    for name in (table.name, f"{table.name}__changes"):
        metadata = pipeline.rest.load(pipeline.namespace, name)["metadata"]
        said = [snapshot["summary"] for snapshot in metadata["snapshots"]]
        assert [summary.get("calve.batch-id") for summary in said] == ["b-1", "b-2"]
        # tests/unit/maintenance/test_document_size.py computes the size of a document with such snapshots.
        for one in metadata["snapshots"]:
            assert one["manifest-list"].endswith(f"/metadata/snap-{one['snapshot-id']}.avro")
            assert one["summary"] == short_summary(one["summary"])
    stamps = {row["_commit_timestamp"] for row in table.changes()}
    assert [int(stamp.timestamp() * 1e6) for stamp in stamps] == [STAMP_US]


def test_a_snapshot_needs_no_manifests_of_the_batches_before_it(pipeline: PipelineLake) -> None:
    """A kept moment has three metadata files then. No other manifest is left in the folder."""
    table = Checked(pipeline.table(COLUMNS))
    table.land(*(insert(id=key, name="a") for key in range(10)))
    for turn in range(4):
        table.land(update(id=turn, name="b"), delete(id=9 - turn))
    for name, most in ((table.table.name, 2), (f"{table.table.name}__changes", 1)):
        known = pyiceberg_client.catalog(pipeline.stack).load_table((pipeline.namespace, name))
        manifests = [one.manifests(known.io) for one in known.snapshots()]
        assert [len(some) for some in manifests][1:] == [most] * 4
        named = {_path(one.manifest_path) for some in manifests for one in some}
        _wait_until_no_other_manifests(pipeline, f"{known.location()}/metadata", named)


def _wait_until_no_other_manifests(pipeline: PipelineLake, folder: str, named: set[str]) -> None:
    until_s = time.monotonic() + 20
    while left := pipeline.files_below(folder, "avro") - named:
        left = {path for path in left if "/snap-" not in path}
        if not left:
            return
        assert time.monotonic() < until_s, left
        time.sleep(0.1)


def _path(location: str) -> str:
    """Without its scheme. Java writes file:/a."""
    scheme, _, path = location.partition(":")
    return f"/{path.lstrip('/')}" if scheme == "file" else path.lstrip("/")


def test_what_manifests_say_of_files_is_what_iceberg_would(pipeline: PipelineLake) -> None:
    """PyIceberg describes them, from the footer that it has just written."""
    columns = {
        "id": "long",
        "name": "string",
        "n": "double",
        "day": "date",
        "price": "decimal(10,2)",
        "x": "int",
    }
    table = pipeline.table(columns)
    row = {"day": dt.date(2026, 11, 16), "price": Decimal("1.25"), "x": None}
    table.land(*(insert(id=key, name=f"a name of some length {key}", n=key / 3, **row) for key in range(50)))
    table.land(update(id=7, name=None, n=float("nan"), **row), delete(id=8))
    spark, catalog = pipeline.slot.session.spark.newSession(), "now"
    attach(spark, catalog, pipeline.stack.url, warehouse="main", s3=s3_options(pipeline.stack))
    for name in (table.name, f"{table.name}__changes"):
        iceberg, found = _loaded(spark, quoted(catalog, pipeline.namespace, name))
        snapshots = list(found.snapshots())
        assert len(snapshots) == 2
        for snapshot in snapshots:
            files = [*snapshot.addedDataFiles(found.io()), *snapshot.addedDeleteFiles(found.io())]
            assert files
            for file in files:
                _compare(iceberg, found, file)


def _loaded(spark: SparkSession, name: str) -> tuple[Any, Any]:
    jvm: Any = spark._jvm
    SparkSession._get_j_spark_session_class(jvm).setActiveSession(spark._jsparkSession)
    iceberg = jvm.org.apache.iceberg
    return iceberg, iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)


def _compare(iceberg: Any, table: Any, file: Any) -> None:
    is_data = str(file.content().name()) == "DATA"
    config = iceberg.MetricsConfig
    wanted = config.forTable(table) if is_data else config.forPositionDelete()
    told = iceberg.parquet.ParquetUtil.fileMetrics(table.io().newInputFile(str(file.location())), wanted)
    assert file.recordCount() == told.recordCount()
    for name in ("columnSizes", "valueCounts", "nullValueCounts", "lowerBounds", "upperBounds"):
        said, expected = getattr(file, name)(), getattr(told, name)()
        assert dict(said or {}).keys() == dict(expected or {}).keys(), name
        for key in dict(expected or {}):
            assert said.get(key).equals(expected.get(key)) if "Bounds" in name else said[key] == expected[key]


class _Interrupted(PlainServer):
    """Lets somebody else write just before a publish; or says that it failed when it did not."""

    def __init__(self, url: str, foreign: list[Any]) -> None:
        super().__init__(url)
        self.foreign = foreign
        self.published = 0
        self.lies = 0

    def publish(
        self,
        job: Job,
        changes: Sequence[TableChange],
        metrics: Mapping[str, Any],
        *,
        transaction: str | None = None,
    ) -> int | None:
        self.published += 1
        if self.foreign:
            self.foreign.pop(0)()
        number = super().publish(job, changes, metrics, transaction=transaction)
        if self.lies:
            self.lies -= 1
            error = TableChanged("an earlier try of this very request was still on its way")
            error.is_certain = False
            raise error
        return number


@pytest.fixture
def interrupted(pipeline: PipelineLake, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Interrupted]:
    server = _Interrupted(pipeline.stack.url, [])
    server.described = pipeline.slot.server.described
    monkeypatch.setattr(pipeline.slot.landing, "server", server)
    yield server
    server.close()


def _foreign_row(table: PipelineTable, key: int) -> None:
    catalog = pyiceberg_client.catalog(table.lake.stack)
    mirror = catalog.load_table((table.lake.namespace, table.name))
    row = {"id": key, "name": "foreign", "_commit_timestamp": dt.datetime.now(dt.UTC)}
    mirror.append(pa.Table.from_pylist([row], mirror.schema().as_arrow()))


def test_a_table_that_moved_is_done_again(pipeline: PipelineLake, interrupted: _Interrupted) -> None:
    table = pipeline.table(COLUMNS)
    table.land(insert(id=1, name="a"), insert(id=2, name="b"))
    interrupted.foreign[:] = [lambda: _foreign_row(table, 100)]
    interrupted.published = 0
    table.land(update(id=2, name="changed"))
    assert interrupted.published == 2
    _wait_until_no_unknown_files(table)
    assert {row["id"]: row["name"] for row in table.mirror()} == {1: "a", 2: "changed", 100: "foreign"}
    assert len(table.changes()) == 3


def test_files_are_deleted_only_if_nobody_can_see_them(
    pipeline: PipelineLake, interrupted: _Interrupted
) -> None:
    """Not if an earlier request may have published them."""
    table = pipeline.table(COLUMNS)
    table.land(insert(id=1, name="a"), insert(id=2, name="b"))
    interrupted.lies = 1
    table.land(update(id=2, name="changed"))
    time.sleep(1)  # what is deleted goes beside everything else
    assert {row["id"]: row["name"] for row in table.mirror()} == {1: "a", 2: "changed"}
    assert [row["_operation"] for row in table.changes()].count("update") == 2  # landed twice, as it was told


def _wait_until_no_unknown_files(table: PipelineTable) -> None:
    until_s = time.monotonic() + 20
    while left := _unknown_files(table):
        assert time.monotonic() < until_s, left
        time.sleep(0.1)


def _unknown_files(table: PipelineTable) -> set[str]:
    """Parquet files of the mirror and the changes that no snapshot ever had."""
    lake = table.lake
    catalog = pyiceberg_client.catalog(lake.stack)
    found: set[str] = set()
    for name in (table.name, f"{table.name}__changes"):
        known = catalog.load_table((lake.namespace, name))
        named = known.inspect.all_files().column("file_path").to_pylist()
        found |= lake.files_below(f"{known.location()}/data") - {path.partition("://")[2] for path in named}
    return found


def _open_names(pipeline: PipelineLake) -> set[str]:
    """The server is shared: others may have transactions open."""
    listed = pipeline.rest.lake("GET", "main/transactions").json()["transactions"]
    return {found["name"] for found in listed if found["state"] == "open"}


def test_but_not_for_ever(pipeline: PipelineLake, interrupted: _Interrupted) -> None:
    table = pipeline.table(COLUMNS, has_changes=False)
    table.land(insert(id=1, name="a"))
    before = _open_names(pipeline)
    interrupted.foreign[:] = [partial(_foreign_row, table, 100 + number) for number in range(TRIES_MAX)]
    with pytest.raises(TableChanged):
        table.land(update(id=1, name="changed"))
    assert {row["id"]: row["name"] for row in table.mirror()}[1] == "a"
    assert _open_names(pipeline) <= before


def test_what_fails_leaves_nothing_behind(pipeline: PipelineLake) -> None:
    good, bad = pipeline.table(COLUMNS), pipeline.table(COLUMNS)
    described = [good.described([insert(id=1, name="a")]), bad.described([insert(id=1, name="a")])]
    described[1]["files"] = [f"{pipeline.stack.warehouse_root}/nothing/here.parquet"]
    before = pipeline.rest.head()
    with pytest.raises(TaskFailed, match="FileNotFoundError"):
        pipeline.run(described)
    assert pipeline.rest.head() == before
    assert pipeline.rest.tables(pipeline.namespace) == []
    _wait_until_empty(pipeline)


@pytest.mark.parametrize("version", [2, 3])
def test_a_share_that_fails_takes_the_files_of_the_others_with_it(
    pipeline: PipelineLake, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    monkeypatch.setattr(planning, "TASK_ROWS_MAX", 5)
    table = pipeline.table(COLUMNS, format_version=version)
    table.land(*(insert(id=key, name="a") for key in range(10)))
    given = table.described([update(id=key, name="b") for key in range(10)])
    given["rejects"] = {"name": f"{table.name}__rejects", "files": ["file:///nothing/here.parquet"]}
    columns = {"_reason": "string"}  # the first share writes them
    given["requests"] = [table._create(f"{table.name}__rejects", columns, (), ())]
    with pytest.raises(TaskFailed):
        pipeline.run([given])
    _wait_until_no_unknown_files(table)
    assert {row["name"] for row in table.mirror()} == {"a"}


def _wait_until_empty(pipeline: PipelineLake) -> None:
    """What a failed job wrote is deleted beside everything else."""
    until_s = time.monotonic() + 20
    while left := pipeline.files_below(f"{pipeline.stack.warehouse_root}/{pipeline.namespace}"):
        assert time.monotonic() < until_s, left
        time.sleep(0.1)


def test_a_lost_lease_is_noticed_before_the_publish(pipeline: PipelineLake) -> None:
    table = pipeline.table(COLUMNS)
    given = {
        "id": "j",
        "epoch": 1,
        "kind": "commit",
        "warehouse": "main",
        "commit-timestamp-us": STAMP_US,
        "batch-id": "b",
    }
    job = pipeline.job(given, [table.described([insert(id=1, name="a")])])
    progress = Progress()
    progress.lose("somebody else has it")
    with pytest.raises(LostLease):
        pipeline.slot.landing.run(job, progress)
    assert pipeline.rest.tables(pipeline.namespace) == []


def test_jobs_that_are_none_of_its_business(pipeline: PipelineLake) -> None:
    with pytest.raises(BadJob, match="kind compact"):
        pipeline.run([pipeline.table(COLUMNS).described([insert(id=1)])], kind="compact")
