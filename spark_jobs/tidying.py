"""Many small files become few, as part of the batch that finds them: readers open each of them.

A batch adds a file to each table, often one a second. When so many have come together, the next batch first
lets Spark join those that are small, inside its own transaction, so that it never meets another writer. What
is large already stays as it is.
"""

from __future__ import annotations

import threading
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_jobs.deltas import iceberg_table
from spark_jobs.sql_text import quoted
from spark_jobs.targets import Target

FILES_MAX = 100  # new ones, between two times
SMALL_BYTES = 4 * 2**20
OPTIONS = {
    "min-input-files": "10",
    "min-file-size-bytes": str(SMALL_BYTES),
    # Nobody else writes inside the transaction, so what is joined may count as newer than all deletes.
    "use-starting-sequence-number": "false",
}


class Tidied:
    """How many files each table had when it was last tidy, as far as this worker knows."""

    def __init__(self) -> None:
        self._files: dict[tuple[str, ...], int] = {}
        self._lock = threading.Lock()

    def is_due(self, target: Target) -> bool:
        with self._lock:
            known = self._files.get(target.name, 0)
            return target.files - min(known, target.files) >= FILES_MAX

    def note(self, target: Target) -> None:
        with self._lock:
            self._files[target.name] = target.files


def tidy(spark: SparkSession, catalog: str, target: Target) -> str | None:
    """Join the small files of a table; what went wrong, if something did: the batch lands without it."""
    options = ", ".join(f"'{name}', '{value}'" for name, value in OPTIONS.items())
    table = quoted(*target.name[1:]).replace("\\", "\\\\").replace("'", "\\'")
    try:
        spark.sql(
            f"CALL {quoted(catalog)}.system.rewrite_data_files(table => '{table}', options => map({options}))"
        )
        _forget_deletes(spark, target)
    except (PySparkException, Py4JJavaError) as error:
        return f"{type(error).__name__}: {error}".partition("\n")[0][:500]
    return None


def _forget_deletes(spark: SparkSession, target: Target) -> None:
    """Leave out the deletes that are older than every row. Spark's own way to do it reads the metadata file,
    which there is none of inside a transaction.
    """
    iceberg, table = iceberg_table(spark, target.sql)
    files, snapshot = table.io(), table.currentSnapshot()
    oldest = min((manifest.minSequenceNumber() for manifest in snapshot.dataManifests(files)), default=0)
    update, over = table.newRewrite(), 0
    for manifest in snapshot.deleteManifests(files):
        reader: Any = iceberg.ManifestFiles.readDeleteManifest(manifest, files, table.specs())
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
