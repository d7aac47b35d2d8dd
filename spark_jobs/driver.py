"""Start the Spark driver of a worker, warm it up, and check whether it is alive."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from spark_jobs.landing import task
from spark_jobs.messages import KeyFileSettings, TableJob, WorkItem
from spark_jobs.session import spark_session
from spark_jobs.tables.commit import committer_of
from spark_jobs.tables.data_files import file_io
from spark_jobs.tables.table_state import TableStates

LOG_SETTINGS = Path(__file__).resolve().with_name("log4j2.properties")
JAVA_OPTIONS = (
    # A worker that runs out of memory exits, and its supervisor starts another.
    "-XX:+ExitOnOutOfMemoryError",
    # Small jobs are mostly planning: the optimizing compiler costs more than it saves.
    "-XX:TieredStopAtLevel=1",
    f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}",
)
SETTINGS = {
    "spark.app.name": "calve-worker",
    "spark.sql.caseSensitive": "true",
    "spark.sql.defaultCatalog": "spark_catalog",  # a statement without a catalog name must not reach a server
    "spark.scheduler.mode": "FAIR",
    "spark.locality.wait": "0s",
    # The size of a batch is known exactly, so adaptive planning has nothing to discover.
    "spark.sql.adaptive.enabled": "false",
    # The server keeps the list of jobs.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "100",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.sql.maxPlanStringLength": "1000",
}


def started(uri: str, *, master: str, memory: str, extra: Mapping[str, str] | None = None) -> SparkSession:
    """Start Spark. SparkUnavailable or JarsMissing if this machine lacks something."""
    settings = {**SETTINGS, "spark.driver.extraJavaOptions": " ".join(JAVA_OPTIONS)}
    if master.startswith("local"):
        settings["spark.python.daemon.module"] = "spark_jobs.daemon"
    settings |= extra or {}
    spark = spark_session(uri, catalog="calve", master=master, memory=memory, extra=settings)
    if not master.startswith("local"):
        _send_code(spark)
    return spark


def _send_code(spark: SparkSession) -> None:
    """Send this package to the executors, below a relative path. They need their own pyarrow and pyiceberg.

    Where executors have this package installed, `spark.python.daemon.module=spark_jobs.daemon` saves them the
    loading time.
    """
    package = Path(__file__).parent
    # Executors that start later fetch it too, so it stays until the driver ends.
    folder = tempfile.mkdtemp(prefix="calve-code-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    spark.sparkContext.addPyFile(
        shutil.make_archive(f"{folder}/spark_jobs", "zip", package.parent, package.name)
    )


def warm_up(spark: SparkSession, rounds: int = 2) -> None:
    """Write small batches to a table in a temporary folder, so that Python workers start and classes are
    loaded before the first real batch.

    Executors on other machines cannot see that folder: they only load their libraries.
    """
    context = spark.sparkContext
    cores = context.defaultParallelism
    if not str(context.master).startswith("local"):
        context.parallelize(range(cores), cores).map(task.load).collect()
        return
    committer = committer_of(context)
    with tempfile.TemporaryDirectory(prefix="calve-warm-") as folder:
        document = _warm_document(folder)
        for number in range(rounds):
            item = _warm_item(Path(folder), document, number)
            results = context.parallelize([item] * cores, cores).map(task.run).collect()
            made = committer.prepare(document, committer.file_io({}), results[0].files["up"])
            assert made is not None
            snapshot = made.updates[0]["snapshot"]
            document |= {
                "snapshots": [snapshot],
                "current-snapshot-id": snapshot["snapshot-id"],
                "refs": {"main": {"snapshot-id": snapshot["snapshot-id"], "type": "branch"}},
                "last-sequence-number": snapshot["sequence-number"],
            }


def _warm_document(folder: str) -> dict[str, Any]:
    columns = {"id": "long", "name": "string", "_commit_timestamp": "timestamptz"}
    fields = [
        {"id": number, "name": name, "type": type_, "required": name == "id"}
        for number, (name, type_) in enumerate(columns.items(), 1)
    ]
    return {
        "format-version": 2,
        "table-uuid": str(uuid.uuid4()),
        "location": f"{folder}/up",
        "last-sequence-number": 0,
        "last-updated-ms": 0,
        "last-column-id": len(columns),
        "schemas": [{"type": "struct", "schema-id": 0, "fields": fields}],
        "current-schema-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "default-spec-id": 0,
        "last-partition-id": 999,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        "properties": {},
    }


def _warm_item(folder: Path, document: Mapping[str, Any], number: int) -> WorkItem:
    """Return an item with two rows for the table. The second round replaces one of them."""
    rows = pa.table(
        {
            "id": pa.array([1, 2 + number], pa.int64()),
            "name": pa.array(["a", None], pa.string()),
            "_calve_seq": pa.array([0, 1], pa.int64()),
            "_calve_operation": pa.array(["insert", "insert"], pa.string()),
        }
    )
    staged = folder / f"{number}.parquet"
    pq.write_table(rows, staged)
    job = TableJob(
        namespace=("warm",),
        name="up",
        files=(staged.as_uri(),),
        columns=("id", "name"),
        key=("id",),
        mirror="up",
    )
    state = TableStates().mirror("up", document, file_io({}), job)
    keys = KeyFileSettings(folder=str(folder / "keys"))
    return WorkItem(job=job, commit_us=0, mirror=state, key_files=keys)


def is_alive(spark: SparkSession) -> bool:
    """Return whether the JVM responds and its context runs."""
    try:
        return not spark.sparkContext._jsc.sc().isStopped()  # noqa: SLF001 - Spark has no other way
    except (Py4JError, OSError, AttributeError):
        return False


def has_ended(spark: SparkSession) -> bool:
    """Return whether the process of the JVM has ended."""
    gateway = spark.sparkContext._gateway  # noqa: SLF001
    process = getattr(gateway, "proc", None)
    return process is not None and process.poll() is not None
