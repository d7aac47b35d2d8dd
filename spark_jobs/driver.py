"""The Spark of a worker: how it is set, started, warmed up and watched."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from spark_jobs.session import spark_session
from spark_jobs.staged import frame

LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
JAVA_OPTIONS = (
    # A worker that ran out of memory is of no use: it ends, and whoever looks after it starts another.
    "-XX:+ExitOnOutOfMemoryError",
    # Small jobs one after another are planned, hardly computed: the second compiler never earns its keep.
    "-XX:TieredStopAtLevel=1",
    f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}",
)
SETTINGS = {
    "spark.app.name": "calve-worker",
    "spark.sql.caseSensitive": "true",
    "spark.sql.defaultCatalog": "spark_catalog",  # a statement that names no catalog reaches no server
    "spark.scheduler.mode": "FAIR",
    "spark.locality.wait": "0s",
    # What a batch consists of is known exactly; there is nothing to find out while it runs.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": str(64 * 2**20),
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000000",  # a batch is one piece
    # Nobody looks at what ran; it need not be kept or written down.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "100",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.sql.maxPlanStringLength": "1000",
}


def started(uri: str, *, master: str, memory: str, extra: Mapping[str, str] | None = None) -> SparkSession:
    """SparkUnavailable or JarsMissing if this machine lacks something."""
    settings = {**SETTINGS, "spark.driver.extraJavaOptions": " ".join(JAVA_OPTIONS), **(extra or {})}
    return spark_session(uri, catalog="calve", master=master, memory=memory, extra=settings)


def warm_up(spark: SparkSession, rounds: int = 2) -> None:
    """What a batch does, on a table of its own in a temporary folder: the first batch should not pay for
    classes that are loaded and plans that are made for the first time.
    """
    lane = spark.newSession()
    name = f"warm_{uuid.uuid4().hex[:8]}"
    with tempfile.TemporaryDirectory(prefix="calve-warm-") as folder:
        prefix = f"spark.sql.catalog.{name}"
        lane.conf.set(prefix, "org.apache.iceberg.spark.SparkCatalog")
        lane.conf.set(f"{prefix}.type", "hadoop")
        lane.conf.set(f"{prefix}.warehouse", Path(folder).as_uri())
        table = f"{name}.warm.up"
        lane.sql(
            f"CREATE TABLE {table} (id BIGINT NOT NULL, name STRING, at TIMESTAMP) USING iceberg "
            "TBLPROPERTIES ('format-version'='2', 'write.delete.mode'='merge-on-read', "
            "'write.merge.mode'='merge-on-read')"
        )
        for number in range(rounds):
            _one_round(lane, table, number)


def _one_round(lane: SparkSession, table: str, number: int) -> None:
    rows = pa.table(
        {
            "id": pa.array([1, 2 + number], pa.int64()),
            "name": pa.array(["a", None], pa.string()),
            "at": pa.array([0, number], pa.timestamp("us", tz="UTC")),
        }
    )
    batch = frame(lane, rows)
    batch.createOrReplaceTempView("batch")
    lane.sql(
        f"DELETE FROM {table} t WHERE t.id BETWEEN CAST(1 AS BIGINT) AND CAST(9 AS BIGINT) "  # noqa: S608
        "AND EXISTS (SELECT 1 FROM batch b WHERE b.id = t.id)"
    )
    batch.coalesce(1).writeTo(table).option("distribution-mode", "none").append()


def is_alive(spark: SparkSession) -> bool:
    """Whether the JVM answers and its context runs."""
    try:
        return not spark.sparkContext._jsc.sc().isStopped()  # noqa: SLF001 - Spark has no other way
    except (Py4JError, OSError, AttributeError):
        return False


def has_ended(spark: SparkSession) -> bool:
    """Whether the JVM's process is gone; asks nobody."""
    gateway = spark.sparkContext._gateway  # noqa: SLF001
    process = getattr(gateway, "proc", None)
    return process is not None and process.poll() is not None
