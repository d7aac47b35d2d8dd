"""A step of the archive of a changes table: some old files become one, sorted and more compressed.

Iceberg's action `rewrite_data_files` chooses files by their size, and writes where the table's property says.
Here the files are chosen by their age, and the new one belongs in the folder of the archive. So the parts of
that action are called one by one: Iceberg reads the files with their deletes, Spark sorts the rows, Iceberg
writes them and replaces the files in one commit. The commit is refused if the table has changed meanwhile;
the server tries the table again later.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import DayTransform
from pyiceberg.types import NestedField
from pyspark.sql import functions

from spark_jobs.messages import OneTableJob
from spark_jobs.server_client import Server, TableChanged
from spark_jobs.slot_session import SlotSession
from spark_jobs.tables.commit import Prepared, quoted
from spark_jobs.tables.data_files import field_of

ARCHIVE = "archive"
DAY_US = 86_400_000_000
FILE_COST_BYTES = 64 * 2**10  # opening a file takes as long as reading this many bytes
_CATALOG = "default_rewrite_catalog"  # which Iceberg finds the tables of a rewrite in
_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:/*")


class Archive(BaseModel):
    """The archive of a table, as the server describes it. Changes whose `column` is below `before_us`, in
    microseconds, belong there.
    """

    model_config = ConfigDict(frozen=True, alias_generator=lambda name: name.replace("_", "-"))
    column: str
    before_us: int
    sort: tuple[str, ...]
    path: str
    properties: dict[str, str]  # which the table gets with the first step
    compression_level: int
    storage_class: str = ""  # of S3; "": what the bucket gives

    def has(self, file: DataFile) -> bool:
        return _plain(file.file_path).startswith(f"{_plain(self.path)}/")


def _plain(location: str) -> str:
    """Without its scheme: engines write file:/a and file:///a."""
    return _SCHEME.sub("/", location)


@dataclass(frozen=True, slots=True)
class OldFile:
    """A data file whose changes belong in the archive."""

    path: str
    bytes: int
    partition: str
    first_us: int
    last_us: int


def old_file(archive: Archive, metadata: TableMetadata, file: DataFile, partition: str) -> OldFile | None:
    """None if a change in the file is too young, or if the file does not say how old its changes are."""
    column = field_of(metadata.schema(), archive.column)
    bounds = _bounds(file, column) or _days(file, metadata.specs()[file.spec_id], column)
    if bounds is None or bounds[1] >= archive.before_us:
        return None
    return OldFile(file.file_path, file.file_size_in_bytes, partition, *bounds)


def _bounds(file: DataFile, column: NestedField) -> tuple[int, int] | None:
    id_, lower, upper = column.field_id, file.lower_bounds or {}, file.upper_bounds or {}
    if id_ not in lower or id_ not in upper:
        return None
    return int.from_bytes(lower[id_], "little", signed=True), int.from_bytes(
        upper[id_], "little", signed=True
    )


def _days(file: DataFile, spec: PartitionSpec, column: NestedField) -> tuple[int, int] | None:
    """By the partition: Iceberg writes no bounds for columns after the hundredth."""
    for index, part in enumerate(spec.fields):
        day = file.partition[index]
        if part.source_id == column.field_id and isinstance(part.transform, DayTransform) and day is not None:
            return day * DAY_US, (day + 1) * DAY_US - 1
    return None


def next_files(files: Sequence[OldFile], bytes_max: int) -> list[OldFile]:
    """The files of the next step: the oldest ones of a partition, `bytes_max` of them, and at least one."""
    chosen: list[OldFile] = []
    left_bytes = bytes_max
    for file in sorted(files, key=lambda one: (one.first_us, one.path)):
        if chosen and file.partition != chosen[0].partition:
            continue
        left_bytes -= max(file.bytes, FILE_COST_BYTES)
        if chosen and left_bytes < 0:
            break
        chosen.append(file)
    return chosen


class ArchiveStep:
    """Moves files to the archive of a table, in one worker slot."""

    def __init__(self, server: Server, slot: SlotSession) -> None:
        self._server = server
        self._slot = slot

    def run(
        self, job: OneTableJob, archive: Archive, files: Sequence[OldFile], *, bytes_max: int
    ) -> dict[str, Any]:
        """Returns what was done. TableChanged if another commit was quicker: then nothing was."""
        document = self._server.load_table(job.warehouse, job.namespace, job.name)
        rewrite = Rewrite(self._slot, job.warehouse, document, archive)
        tasks = rewrite.tasks(archive.column, files)
        written = rewrite.write(tasks, archive, outputs=self._outputs(files, bytes_max))
        prepared = rewrite.replace(tasks, written, archive.properties)
        change = {
            "identifier": {"namespace": list(job.namespace), "name": job.name},
            "requirements": prepared.requirements,
            "updates": prepared.updates,
        }
        # After a failure the new files may be orphans. They are not deleted here: the commit may have been
        # made though its answer was lost.
        self._server.commit(quote(job.warehouse, safe=""), [change])
        return {
            "rewritten-data-files": len(files),
            "rewritten-bytes": sum(file.bytes for file in files),
            "added-data-files": len(written),
            "added-bytes": sum(file.fileSizeInBytes() for file in written),
        }

    def _outputs(self, files: Sequence[OldFile], bytes_max: int) -> int:
        """One file. But a file that is too large for one step is divided among the cores, so that batches of
        the table do not wait for long.
        """
        cores = self._slot.spark.sparkContext.defaultParallelism
        return max(1, min(cores, sum(file.bytes for file in files) // max(1, bytes_max)))


class Rewrite:
    """The parts of a rewrite of chosen files. `document` is the table."""

    def __init__(
        self, slot: SlotSession, warehouse: str, document: Mapping[str, Any], archive: Archive
    ) -> None:
        self._slot = slot
        self._document = document
        self._io = slot.java_io(warehouse)
        self._jvm: Any = slot.spark.sparkContext._jvm  # noqa: SLF001 - there is no other way to it
        properties = {**document.get("properties", {}), "write.data.path": archive.path}
        properties.pop("write.object-storage.enabled", None)
        # Only the data files get the class of the archive: every query reads the metadata.
        data_io = slot.java_io(warehouse, storage_class=archive.storage_class)
        self._table = slot.committer.table({**document, "properties": properties}, data_io)

    def tasks(self, column: str, files: Sequence[OldFile]) -> list[Any]:
        """How Iceberg reads the files: each with the deletes that belong to it."""
        expressions = self._jvm.org.apache.iceberg.expressions.Expressions
        scan = self._table.newScan().ignoreResiduals()
        scan = scan.filter(expressions.greaterThanOrEqual(column, min(one.first_us for one in files)))
        scan = scan.filter(expressions.lessThanOrEqual(column, max(one.last_us for one in files)))
        wanted, found = {one.path for one in files}, []
        planned = scan.planFiles()
        try:
            tasks = planned.iterator()
            while tasks.hasNext():
                task = tasks.next()
                if task.file().location() in wanted:
                    found.append(task)
        finally:
            planned.close()
        if len(found) != len(wanted):
            raise TableChanged("the files of the table have changed since they were chosen", 409)
        return found

    def write(self, tasks: Sequence[Any], archive: Archive, *, outputs: int) -> list[Any]:
        """Write the rows of the files in the order of time. Returns the new files."""
        spark, iceberg = self._slot.spark, self._jvm.org.apache.iceberg.spark
        cache, staged = self._table_cache(), iceberg.ScanTaskSetManager.get()
        coordinator, id_ = iceberg.FileRewriteCoordinator.get(), str(uuid.uuid4())
        order = [functions.col(quoted(column)) for column in archive.sort]
        # Iceberg sets this for the active session of the thread, which may be that of another slot.
        spark.conf.set(f"spark.sql.catalog.{_CATALOG}", "org.apache.iceberg.spark.SparkRewriteTableCatalog")
        # Iceberg looks for that catalog in the session that is active in the thread of the JVM.
        self._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)  # noqa: SLF001
        try:
            cache.add(id_, self._table)
            staged.stageTasks(self._table, id_, self._java_list(tasks))
            rows = spark.read.format("iceberg").option("file-open-cost", "0").load(id_)
            rows = rows.coalesce(1) if outputs == 1 else rows.repartitionByRange(outputs, *order)
            options = {
                "use-table-distribution-and-ordering": "false",
                "fanout-enabled": "true",
                "output-spec-id": str(self._document.get("default-spec-id", 0)),
                "compression-codec": "zstd",
                "compression-level": str(archive.compression_level),
            }
            writer = rows.sortWithinPartitions(*order).write.format("iceberg").options(**options)
            writer.mode("append").save(id_)
            return list(coordinator.fetchNewFiles(self._table, id_))
        finally:
            cache.remove(id_)
            staged.removeTasks(self._table, id_)
            coordinator.clearRewrite(self._table, id_)

    def replace(
        self, tasks: Sequence[Any], written: Sequence[Any], properties: Mapping[str, str]
    ) -> Prepared:
        old = [task.file() for task in tasks]
        vectors = [
            delete
            for task in tasks
            for delete in task.deletes()
            if self._jvm.org.apache.iceberg.util.ContentFileUtil.isDV(delete)
        ]
        return self._slot.committer.replace(
            self._document, self._io, old, written, vectors, properties=properties
        )

    def _table_cache(self) -> Any:
        """Iceberg's cache of tables. Its class has a static and another method `get`, and Py4J takes the one
        that the JVM lists first, so it is called by reflection.
        """
        gateway = self._slot.spark.sparkContext._gateway  # noqa: SLF001 - there is no other way to it
        assert gateway is not None
        loader = self._jvm.Thread.currentThread().getContextClassLoader()
        found = loader.loadClass("org.apache.iceberg.spark.SparkTableCache")
        method = found.getMethod("get", gateway.new_array(self._jvm.java.lang.Class, 0))
        return method.invoke(None, gateway.new_array(self._jvm.java.lang.Object, 0))

    def _java_list(self, items: Sequence[Any]) -> Any:
        found = self._jvm.java.util.ArrayList()
        for item in items:
            found.add(item)
        return found
