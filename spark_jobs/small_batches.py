"""Batches that fit into the driver's memory, without a Spark job where that is possible.

Each method says whether it did it; if not, nothing has happened, and Spark has to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from spark_jobs.deltas import Delta
from spark_jobs.file_schema import FileSchema
from spark_jobs.fold import DELETE
from spark_jobs.key_index import ROWS_MAX, KeyIndex, is_indexed, whole
from spark_jobs.key_indexes import KeyIndexes
from spark_jobs.sql_text import quoted
from spark_jobs.staged import Store
from spark_jobs.targets import Target

LookUp = Callable[[], pa.Table]  # where the batch's keys stand: `file_path` and `pos`
_HIDDEN = {"_file", "_pos"}  # a table with columns of these names hides the places of its rows


class SmallBatches:
    """`said` goes into the summary of each snapshot, `written` gets the paths of all files."""

    def __init__(
        self,
        spark: SparkSession,
        store: Store,
        indexes: KeyIndexes,
        said: Mapping[str, str],
        commit_us: int,
        written: list[str],
    ) -> None:
        self._spark = spark
        self._store = store
        self._indexes = indexes
        self._said = said
        self._commit_us = commit_us
        self._written = written

    def append(self, rows: pa.Table, target: Target) -> bool:
        """Add the rows."""
        schema = target.file_schema
        fitted = schema.fitted(rows) if schema is not None else None
        if schema is None or fitted is None:
            return False
        self._commit(target, schema, fitted, None)
        return True

    def upsert(self, rows: pa.Table, target: Target, key: tuple[str, ...], look_up: LookUp | None) -> bool:
        """One row of each key, and `DELETE`: the old row of each key goes, the new one comes unless it is a
        delete. Without `look_up` there surely is no old row.
        """
        schema = target.file_schema
        if schema is None or schema.day_partition is not None or _HIDDEN & set(schema.columns.names):
            return False
        fitted = schema.fitted(rows.filter(pc.invert(rows.column(DELETE))).drop_columns([DELETE]))
        if fitted is None:
            return False
        index = self._index(target, schema, key, may_scan=look_up is not None)
        if index is not None:
            positions = index.positions(rows.column(key[0]))
        elif look_up is not None:
            positions = look_up().sort_by([("file_path", "ascending"), ("pos", "ascending")])
        else:
            positions = None
        if positions is not None and not positions.num_rows:
            positions = None
        if not fitted.num_rows and positions is None:
            return True
        path, snapshot = self._commit(target, schema, fitted, positions)
        if index is not None:
            # Not to be found by anybody while it belongs to neither snapshot.
            self._indexes.forget(target.name)
            index.follow(rows.column(key[0]), path, fitted.column(key[0]))
            self._indexes.put(target.name, (target.state[0], snapshot, key), index)
        return True

    def _commit(
        self, target: Target, schema: FileSchema, rows: pa.Table, positions: pa.Table | None
    ) -> tuple[str | None, int]:
        delta = Delta(self._spark, self._store, target.sql, schema, self._written)
        return delta.commit(rows, positions, self._said, self._commit_us)

    def knows(self, target: Target, key: tuple[str, ...]) -> bool:
        """Whether it is known where each row stands."""
        return self._indexes.get(target.name, (*target.state, key)) is not None

    def _index(
        self, target: Target, schema: FileSchema, key: tuple[str, ...], *, may_scan: bool
    ) -> KeyIndex | None:
        """What is known of the mirror, or can be found out with one scan; None if that would be too much."""
        if len(key) != 1 or not is_indexed(schema.columns.field(key[0]).type) or target.rows > ROWS_MAX:
            return None
        known = self._indexes.get(target.name, (*target.state, key))
        if known is not None:
            return known
        if not target.records:
            return KeyIndex.empty(schema.columns.field(key[0]).type)
        return self._scanned(target, key[0]) if may_scan else None

    def _scanned(self, target: Target, key: str) -> KeyIndex | None:
        """The paths come once, and not with each row."""
        files = self._spark.sql(
            f"SELECT file_path, xxhash64(file_path) FROM {target.sql}.data_files"  # noqa: S608
        ).toArrow()
        hashes = pc.unique(files.column(1))
        if len(hashes) != files.num_rows:
            return None  # two paths of one hash: as likely as never
        found = self._spark.sql(
            f"SELECT {quoted(key)}, xxhash64(_file), _pos FROM {target.sql} "  # noqa: S608
            f"WHERE {quoted(key)} IS NOT NULL"
        ).toArrow()
        numbers = pc.index_in(found.column(1), value_set=hashes)
        if numbers.null_count:
            return None
        keys, places = whole(found.column(0)), whole(found.column(2))
        return KeyIndex(keys, whole(numbers), places, files.column(0).to_pylist())
