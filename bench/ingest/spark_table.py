"""Spark beside Calve, in a process of its own: the hand-written job, and the filling of large mirrors.

    python -m bench.ingest.spark_table --uri http://127.0.0.1:8181

It takes one JSON object on each line of its input and answers each with one on its output:

    {"do": "create", "table": "rival.orders", "keys": N}    a table of N rows and its table of changes
    {"do": "start", "table": ..., "folder": ..., "events": N}   begin to stream; answered at once
    {"do": "finish"}                                        wait until N changes are merged
    {"do": "drain"}                                         wait until all that is there is merged
    {"do": "stop"}                                          end the stream
    {"do": "fill", "table": ..., "from": N, "to": M, "text": false}   add these rows to a table that is there
    {"do": "warm-up", "folder": ...}                        two small rounds on a table that is thrown away

The job is what a person writes by the book: NDJSON files from a folder, `foreachBatch`, the newest change of
each key by row_number, one append to the changes, one MERGE into the mirror. Its tables have the properties
of Calve's own, and it runs on the same Spark and Iceberg, through the same catalog.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.window import Window

from bench.ingest import events, inbox
from ingest.staging.targets import TABLE_PROPERTIES
from spark_jobs.session import spark_session
from spark_jobs.worker import s3_from

COLUMNS = (
    "id BIGINT, customer STRING, amount DOUBLE, status STRING, note STRING, active BOOLEAN, marker BIGINT"
)
NAMES = [part.split()[0] for part in COLUMNS.split(", ")]
EVENT = (
    "sequence BIGINT, timestamp BIGINT, operation STRING, `table` STRING, rowId STRING, "
    f"before STRUCT<id: BIGINT>, after STRUCT<{COLUMNS.replace(' ', ': ').replace(',:', ',')}>"
)
FINISH_S = 900.0


class Job:
    """One stream at a time."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._query: StreamingQuery | None = None
        self._wanted = self._merged = 0
        self._triggers: list[dict[str, float]] = []
        self._all = threading.Event()

    def create(self, table: str, keys: int) -> None:
        namespace = table.rsplit(".", 1)[0]
        wanted = {**TABLE_PROPERTIES, "format-version": "2"}
        properties = ", ".join(f"'{name}' = '{value}'" for name, value in wanted.items())
        stamp = "_commit_timestamp TIMESTAMP"
        past = "_operation STRING, _source_timestamp TIMESTAMP, _position BIGINT"
        self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
        self._spark.sql(
            f"CREATE TABLE {table} ({COLUMNS}, {stamp}) USING iceberg TBLPROPERTIES ({properties})"
        )
        self._spark.sql(
            f"CREATE TABLE {table}__changes ({COLUMNS}, {past}, {stamp}) USING iceberg "
            f"PARTITIONED BY (days(_commit_timestamp)) TBLPROPERTIES ({properties})"
        )
        self.fill(table, 0, keys)

    def fill(self, table: str, first: int, end: int, *, text: bool = False) -> None:
        """The rows that `events.row` gives for these keys, with the marker 0."""
        same = events.row(0, 0)
        # events.text_key
        key = "format_string('%08x-%010d', id * 2654435761 % 4294967296, id) AS id" if text else "id"
        self._spark.range(first, end).selectExpr(
            key,
            "concat('customer ', id * 7919 % 10007) AS customer",
            f"CAST({same['amount']} AS DOUBLE) AS amount",
            f"'{same['status']}' AS status",
            "concat('order ', id, ' after 0') AS note",
            "true AS active",
            "0L AS marker",
            "current_timestamp() AS _commit_timestamp",
        ).writeTo(table).append()

    def start(self, table: str, folder: str, wanted: int) -> None:
        self._wanted, self._merged, self._triggers = wanted, 0, []
        self._all.clear()
        self._query = (
            self._spark.readStream.schema(EVENT)
            .json(folder)
            .writeStream.foreachBatch(lambda batch, number: self._land(table, batch))
            .option("checkpointLocation", f"{folder}.checkpoint")
            .start()
        )

    def _land(self, table: str, batch: DataFrame) -> None:
        began = time.monotonic()
        rows = self._rows(batch).persist()
        count = rows.count()
        named = [*NAMES, "_operation", "_source_timestamp", "_position", "_commit_timestamp"]
        rows.select(*named).writeTo(f"{table}__changes").append()
        appended = time.monotonic()
        newest = rows.withColumn("_n", F.row_number().over(_newest_first())).where("_n = 1")
        newest.select(*NAMES, "_operation", "_commit_timestamp").createOrReplaceTempView("newest")
        values = ", ".join([*NAMES, "_commit_timestamp"])
        given = ", ".join(f"s.{name}" for name in [*NAMES, "_commit_timestamp"])
        sets = ", ".join(f"t.{name} = s.{name}" for name in [*NAMES, "_commit_timestamp"])
        rows.sparkSession.sql(
            f"MERGE INTO {table} t USING newest s ON t.id = s.id "
            "WHEN MATCHED AND s._operation = 'DELETE' THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET {sets} "
            f"WHEN NOT MATCHED AND s._operation <> 'DELETE' THEN INSERT ({values}) VALUES ({given})"
        )
        rows.unpersist()
        merged = time.monotonic()
        self._triggers.append({"events": count, "append": appended - began, "merge": merged - appended})
        self._merged += count
        if self._merged >= self._wanted:
            self._all.set()

    @staticmethod
    def _rows(batch: DataFrame) -> DataFrame:
        columns = [F.coalesce("after.id", "before.id").alias("id")]
        columns += [F.col(f"after.{name}").alias(name) for name in NAMES[1:]]
        return batch.select(
            *columns,
            F.col("operation").alias("_operation"),
            F.timestamp_millis("timestamp").alias("_source_timestamp"),
            F.col("sequence").alias("_position"),
            F.current_timestamp().alias("_commit_timestamp"),
        )

    def finish(self) -> list[dict[str, float]]:
        assert self._query is not None
        until = time.monotonic() + FINISH_S
        while not self._all.wait(0.01):
            failure = self._query.exception()
            if failure is not None or time.monotonic() > until:
                raise RuntimeError(f"the stream ended early: {failure}")
        return self._triggers

    def drain(self) -> None:
        assert self._query is not None
        self._query.processAllAvailable()

    def stop(self) -> None:
        if self._query is not None:
            self._query.stop()
            self._query = None

    def warm_up(self, folder: str) -> None:
        """So that nobody measures the compiling of code."""
        table, count = "rival_warm_up.orders", 2_000
        self.create(table, 1_000)
        orders = events.Orders(table, 1_000, seed=3)
        for turn in range(2):
            place = Path(folder) / f"warm-up-{turn}"
            place.mkdir(parents=True)
            for part in range(2):
                changes = orders.changes((2 * turn + part) * count, count)
                inbox.put(place, part, inbox.content(list(changes)))
            self.start(table, str(place), 2 * count)
            self.finish()
            self.stop()


def _newest_first() -> Any:
    return Window.partitionBy("id").orderBy(F.col("_position").desc())


def _answer(job: Job, asked: dict[str, Any]) -> Any:
    match asked["do"]:
        case "create":
            return job.create(asked["table"], asked["keys"])
        case "start":
            return job.start(asked["table"], asked["folder"], asked["events"])
        case "finish":
            return job.finish()
        case "drain":
            return job.drain()
        case "stop":
            return job.stop()
        case "fill":
            return job.fill(asked["table"], asked["from"], asked["to"], text=asked["text"])
        case "warm-up":
            return job.warm_up(asked["folder"])
    raise ValueError(asked["do"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--uri", required=True)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--memory", default="1g")
    given = parser.parse_args()
    job = Job(spark_session(given.uri, s3=s3_from(os.environ), master=given.master, memory=given.memory))
    sys.stdout.write('{"ready": true}\n')
    sys.stdout.flush()
    for line in sys.stdin:
        found = _answer(job, json.loads(line))
        sys.stdout.write(json.dumps({"done": found}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
