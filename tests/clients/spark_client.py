"""Spark as a black-box user: one session for the process, one catalog of it for each warehouse reference."""

from __future__ import annotations

import re
import warnings
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_jobs.session import S3Options, attach, spark_session
from tests.harness.stacks import Stack

# One small job after another: compiled code never pays, threads wait for each other, statistics are known.
QUICK_START = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.python.daemon.module": "spark_jobs.daemon",
    "spark.sql.defaultCatalog": "spark_catalog",  # statements that name no catalog reach no server
}
# Table properties with which changed rows become position deletes (v2) or deletion vectors (v3).
MERGE_ON_READ = (
    "'write.delete.mode'='merge-on-read', 'write.update.mode'='merge-on-read', "
    "'write.merge.mode'='merge-on-read'"
)


def started_session() -> SparkSession:
    """The session of this process. It stands nowhere: each test attaches what it needs."""
    spark = spark_session("http://127.0.0.1:9", catalog="nowhere", extra=QUICK_START)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


class SparkRefused(Exception):
    """Spark's own words for what went wrong, without the hundred lines of where in the JVM."""


class SparkLake:
    """The session, looking at one stack."""

    def __init__(self, session: SparkSession, stack: Stack) -> None:
        self.session = session
        self._stack = stack

    def catalog(self, warehouse: str = "main") -> str:
        """The name of the catalog that stands for a warehouse reference; made at its first use."""
        name = re.sub(r"\W", "_", f"{self._stack.name}_{self._stack.server.port}_{warehouse}")
        if self.session.conf.get(f"spark.sql.catalog.{name}", None) is None:
            attach(self.session, name, self._stack.url, warehouse=warehouse, s3=s3_options(self._stack))
            # Without it Spark deletes the files of a purged table itself, even inside a transaction.
            self.session.conf.set(f"spark.sql.catalog.{name}.rest-catalog-purge", "true")
        return name

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        """The rows of a statement."""
        with warnings.catch_warnings():
            # PySpark leaves the socket that rows came through to the garbage collector.
            warnings.simplefilter("ignore", ResourceWarning)
            try:
                return [tuple(row) for row in self.session.sql(text).collect()]
            except (PySparkException, Py4JJavaError) as error:
                raise SparkRefused(_words(str(error))) from None


def _words(trace: str) -> str:
    """What a Java stack trace says, without where."""
    said, _, where = trace.partition("\n\tat ")
    return "\n".join([said, *re.findall(r"^Caused by: .*", where, re.MULTILINE)])


def s3_options(stack: Stack) -> S3Options | None:
    """Keys only: where the store is, `/v1/config` says."""
    if stack.s3 is None:
        return None
    return S3Options(access_key_id=stack.s3.access_key_id, secret_access_key=stack.s3.secret_access_key)
