"""Many small files become few, as part of the batch that finds them: readers open each of them.

A batch adds a file to each table, often one a second. When so many have come together, the next batch first
lets Spark join those that are small, inside its own transaction, so that it never meets another writer. What
is large already stays as it is.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_jobs.commit import IcebergTable, quoted

FILES_MAX = 100  # new ones, between two times
SMALL_BYTES = 4 * 2**20
OPTIONS = {
    "min-input-files": "10",
    "min-file-size-bytes": str(SMALL_BYTES),
    # No other writer is inside the transaction, so what is joined may count as newer than all deletes.
    "use-starting-sequence-number": "false",
}
Name = tuple[str, ...]  # warehouse, namespace, table


class Compacted:
    """How many files each table had after its last compaction, as far as this worker knows."""

    def __init__(self) -> None:
        self._files: dict[Name, int] = {}
        self._lock = threading.Lock()

    def is_due(self, name: Name, metadata: Mapping[str, Any]) -> bool:
        files = _files(metadata)
        with self._lock:
            return files - min(self._files.get(name, 0), files) >= FILES_MAX

    def note(self, name: Name, metadata: Mapping[str, Any]) -> None:
        with self._lock:
            self._files[name] = _files(metadata)


def _files(metadata: Mapping[str, Any]) -> int:
    current = metadata.get("current-snapshot-id")
    for snapshot in metadata.get("snapshots") or ():
        if snapshot["snapshot-id"] == current:
            return int(snapshot.get("summary", {}).get("total-data-files", 0))
    return 0


def compact(spark: SparkSession, catalog: str, name: Name) -> str | None:
    """Join the small files of a table; the error, if there was one: the batch lands without it."""
    options = ", ".join(f"'{option}', '{value}'" for option, value in OPTIONS.items())
    table = quoted(*name[1:]).replace("\\", "\\\\").replace("'", "\\'")
    try:
        spark.sql(
            f"CALL {quoted(catalog)}.system.rewrite_data_files(table => '{table}', options => map({options}))"
        )
        _drop_deletes(spark, quoted(catalog, *name[1:]))
    except (PySparkException, Py4JJavaError) as error:
        return f"{type(error).__name__}: {error}".partition("\n")[0][:500]
    return None


def _drop_deletes(spark: SparkSession, sql_name: str) -> None:
    """Leave out the deletes that are older than every row. Spark's own way to do it reads the metadata file,
    which there is none of inside a transaction.
    """
    loaded = IcebergTable(spark, sql_name)
    table = loaded.table
    files, snapshot = table.io(), table.currentSnapshot()
    oldest = min((manifest.minSequenceNumber() for manifest in snapshot.dataManifests(files)), default=0)
    update, over = table.newRewrite(), 0
    for manifest in snapshot.deleteManifests(files):
        reader: Any = loaded.iceberg.ManifestFiles.readDeleteManifest(manifest, files, table.specs())
        try:
            entries = reader.iterator()
            while entries.hasNext():
                file = entries.next()
                if file.dataSequenceNumber() < oldest:
                    update, over = update.deleteFile(file.copy()), over + 1
        finally:
            reader.close()
    if over:
        update.commit()
