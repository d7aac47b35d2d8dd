"""Small batches, written by the driver itself: a Parquet file of rows, one of deleted positions, one commit.

A Spark job that writes a thousand rows spends most of its time on planning, and a MERGE twice that. What is
known here (the rows, and where the old ones stand) needs no plan: Arrow writes the files, and Iceberg's own
library, in the driver's JVM and through the lane's catalog, commits them as Spark would. Large batches, and
tables that `file_schema` does not know how to write, go to the executors.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from spark_jobs.file_schema import POSITIONS, FileSchema
from spark_jobs.staged import Store, is_local, local_path

COMPRESSION = "zstd"


def iceberg_table(spark: SparkSession, table: str) -> tuple[Any, Any]:
    """Iceberg's library in the driver's JVM, and a table as that has it."""
    jvm: Any = spark._jvm  # noqa: SLF001 - there is no other way to it
    session = spark._jsparkSession  # noqa: SLF001
    # Spark finds the lane's catalog by the session of this thread, which a statement would set.
    SparkSession._get_j_spark_session_class(jvm).setActiveSession(session)  # noqa: SLF001
    iceberg = jvm.org.apache.iceberg
    return iceberg, iceberg.spark.Spark3Util.loadIcebergTable(session, table)


class Delta:
    """The rows that one commit adds to a table, and the positions that it deletes. `written` gets the paths
    of all files that are begun.
    """

    def __init__(
        self, spark: SparkSession, store: Store, table: str, schema: FileSchema, written: list[str]
    ) -> None:
        self._store = store
        self._written_paths = written
        self._iceberg, self._table = iceberg_table(spark, table)
        self._java: Any = spark._jvm.java  # type: ignore[union-attr]  # noqa: SLF001
        self._schema = schema

    def commit(
        self, rows: pa.Table, positions: pa.Table | None, said: Mapping[str, str], commit_us: int
    ) -> tuple[str | None, int]:
        """Add the rows (fitted to the schema), delete the positions; the path of the new file, if there is
        one, and the snapshot.
        """
        codec = self._table.properties().getOrDefault("write.parquet.compression-codec", COMPRESSION)
        update = self._update(is_append=positions is None)
        path = None
        if rows.num_rows:
            path, file = self._written(rows, "data", codec, commit_us)
            update = update.appendFile(file) if positions is None else update.addRows(file)
        if positions is not None:
            _, file = self._written(positions.cast(POSITIONS), "deletes", codec, commit_us)
            update = update.addDeletes(file)
        for name, value in said.items():
            update = update.set(name, value)
        update.commit()
        return path, int(self._table.currentSnapshot().snapshotId())

    def _update(self, *, is_append: bool) -> Any:
        update = self._table.newAppend() if is_append else self._table.newRowDelta()
        if not is_local(str(self._table.location())):
            return update
        # Iceberg looks every 10 ms whether its pool is done; the few small files of a commit take less.
        executors = self._iceberg.relocated.com.google.common.util.concurrent.MoreExecutors
        here = executors.newDirectExecutorService()
        return update.scanManifestsWith(here).writeManifestsWith(here, 1)

    def _written(self, rows: pa.Table, kind: str, codec: str, commit_us: int) -> tuple[str, Any]:
        """Write a file; its path, and how Iceberg describes it."""
        partition = self._schema.partition_path(commit_us)
        name = f"{partition}/" if partition else ""
        path = str(self._table.locationProvider().newDataLocation(f"{name}{uuid.uuid4()}-{kind}.parquet"))
        self._written_paths.append(path)
        with self._store.created(path) as sink:
            pq.write_table(rows, sink, compression=_arrow_codec(codec), store_decimal_as_integer=True)
        iceberg, spec = self._iceberg, self._table.spec()
        file = self._table.io().newInputFile(path)
        if kind == "data":
            wanted = iceberg.MetricsConfig.forTable(self._table)
            described = iceberg.DataFiles.builder(spec)
        else:
            wanted = iceberg.MetricsConfig.forPositionDelete()
            described = iceberg.FileMetadata.deleteFileBuilder(spec).ofPositionDeletes()
        if partition:
            described = described.withPartitionPath(partition)
        # The file's own idea of its place is spelled as Hadoop spells it; positions are told by the table's.
        described = described.withInputFile(file).withPath(path).withFormat("parquet")
        return path, described.withMetrics(self._metrics(path, file, wanted)).build()

    def _metrics(self, path: str, file: Any, wanted: Any) -> Any:
        """What the footer says of the columns, in Iceberg's words."""
        described = self._iceberg.parquet.ParquetUtil
        if not is_local(path):
            return described.fileMetrics(file, wanted)
        # The same, but for Hadoop's settings, which that reads anew from XML for each file: 13 ms of 22.
        parquet, java = self._iceberg.shaded.org.apache.parquet, self._java
        options = parquet.ParquetReadOptions.builder(parquet.conf.PlainParquetConfiguration()).build()
        source = parquet.io.LocalInputFile(java.io.File(local_path(path)).toPath())
        reader = parquet.hadoop.ParquetFileReader.open(source, options)
        try:
            return described.footerMetrics(reader.getFooter(), java.util.stream.Stream.empty(), wanted)
        finally:
            reader.close()


def _arrow_codec(codec: str) -> str:
    return {"uncompressed": "none"}.get(codec, codec)
