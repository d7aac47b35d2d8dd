"""The Spark of a worker: its settings, its start, and whether it is alive."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from spark_jobs.session import spark_session

LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
JAVA_OPTIONS = (
    # A worker that ran out of memory ends, and its supervisor starts another.
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
    "spark.python.daemon.module": "spark_jobs.daemon",
    # What ran is in the jobs of the server.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "100",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.sql.maxPlanStringLength": "1000",
}


def started(uri: str, *, master: str, memory: str, extra: Mapping[str, str] | None = None) -> SparkSession:
    """SparkUnavailable or JarsMissing if this machine lacks something."""
    settings = {**SETTINGS, "spark.driver.extraJavaOptions": " ".join(JAVA_OPTIONS), **(extra or {})}
    spark = spark_session(uri, catalog="calve", master=master, memory=memory, extra=settings)
    if not master.startswith("local"):
        _send_code(spark)
    return spark


def _send_code(spark: SparkSession) -> None:
    """Executors get this package; they need pyarrow and pyiceberg of their own."""
    package = Path(__file__).parent
    with tempfile.TemporaryDirectory(prefix="calve-code-") as folder:
        made = shutil.make_archive(f"{folder}/spark_jobs", "zip", package.parent, package.name)
        spark.sparkContext.addPyFile(made)


def warm_up(spark: SparkSession) -> None:
    """Start the Python workers of all cores here, and let them run a task: the first batch should not pay for
    it. Iceberg's classes are loaded by the first commit.
    """
    context = spark.sparkContext
    cores = context.defaultParallelism
    context.parallelize(range(cores), cores).map(_nothing).collect()


def _nothing(number: int) -> int:
    return number


def is_alive(spark: SparkSession) -> bool:
    """Whether the JVM answers and its context runs."""
    try:
        return not spark.sparkContext._jsc.sc().isStopped()  # noqa: SLF001 - Spark has no other way
    except (Py4JError, OSError, AttributeError):
        return False


def has_ended(spark: SparkSession) -> bool:
    """Whether the JVM's process is gone."""
    gateway = spark.sparkContext._gateway  # noqa: SLF001
    process = getattr(gateway, "proc", None)
    return process is not None and process.poll() is not None
