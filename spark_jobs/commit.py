"""The commits of a batch, by Iceberg's own library in the driver's JVM.

Tasks have written and described the files; here each table gets one snapshot with them. No file is read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

BATCH_ID = "calve.batch-id"  # in the summary of every snapshot


class IcebergTable:
    """A table as Iceberg's library has it, loaded through the catalog of a worker slot."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        jvm: Any = spark._jvm  # noqa: SLF001 - there is no other way to it
        session = spark._jsparkSession  # noqa: SLF001
        # Spark finds the catalog by the active session of this thread, which a statement would set.
        SparkSession._get_j_spark_session_class(jvm).setActiveSession(session)  # noqa: SLF001
        self.iceberg: Any = jvm.org.apache.iceberg
        self.table: Any = self.iceberg.spark.Spark3Util.loadIcebergTable(session, name)

    def commit(self, described: Sequence[str], *, truncated: bool, summary: Mapping[str, str]) -> None:
        """Add files, given in the JSON of the REST specification, in one snapshot. `truncated` removes all
        rows that are there.
        """
        if not described and not truncated:
            return
        parser, mapper = self.iceberg.ContentFileParser, self.iceberg.util.JsonUtil.mapper()
        specs = self.table.specs()
        data: list[Any] = []
        deletes: list[Any] = []
        for text in described:
            file = parser.fromJson(mapper.readTree(text), specs)
            (data if json.loads(text)["content"] == "data" else deletes).append(file)
        if truncated:
            update = self.table.newOverwrite()
            update = update.overwriteByRowFilter(self.iceberg.expressions.Expressions.alwaysTrue())
            add = update.addFile
        elif deletes:
            update = self.table.newRowDelta()
            add = update.addRows
        else:
            update = self.table.newAppend()
            add = update.appendFile
        for file in data:
            add(file)
        for file in deletes:
            update.addDeletes(file)
        for name, value in summary.items():
            update.set(name, value)
        self._quick(update).commit()

    def _quick(self, update: Any) -> Any:
        """Iceberg looks every 10 ms whether its pool is done; the few small files of a commit take less. On
        an object store the pool pays.
        """
        if not str(self.table.location()).startswith(("file:", "/")):
            return update
        executors = self.iceberg.relocated.com.google.common.util.concurrent.MoreExecutors
        here = executors.newDirectExecutorService()
        return update.scanManifestsWith(here)


def quoted(*names: str) -> str:
    """A name of several parts as Spark reads it: `a`.`b`.`c`"""
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)
