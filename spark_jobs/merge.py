"""How the folded rows of a batch get into the mirror, so that each key has one row afterwards.

    append        nothing to look for: the mirror is empty, or all keys are above its largest one
    delta         the driver knows, or looks up, where the old rows stand, and writes the files itself
    merge         one MERGE; for small mirrors
    replace       delete the batch's keys by a broadcast join, then append; for large mirrors, where the outer
                  join of a MERGE would shuffle the whole table

Both commits of `replace` happen inside one transaction, so nobody sees the rows gone.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.fold import DELETE, LateTruncate
from spark_jobs.job import TableJob
from spark_jobs.small_batches import SmallBatches
from spark_jobs.sql_text import Limit, quoted, same_key, text_literal, within
from spark_jobs.staged import frame
from spark_jobs.targets import Ceilings, Target
from spark_jobs.upserts import Upserts

MERGE_RECORDS_MAX = 200_000


def append(rows: DataFrame, target: Target, *, small: bool = True) -> None:
    """A small batch becomes one file for each partition, without a shuffle where there is but one."""
    writer = (rows.coalesce(1) if small else rows).writeTo(target.sql)
    if target.one_partition:
        writer = writer.option("distribution-mode", "none").option("fanout-enabled", "true")
    writer.append()


@contextlib.contextmanager
def view_of(spark: SparkSession, rows: DataFrame | pa.Table) -> Iterator[str]:
    """The rows under a name, for SQL, until the end of the block."""
    name = f"calve_{uuid.uuid4().hex}"
    made = rows if isinstance(rows, DataFrame) else frame(spark, rows)
    made.createOrReplaceTempView(name)
    try:
        yield name
    finally:
        spark.catalog.dropTempView(name)


class Mirror:
    """The mirror of one table inside one transaction."""

    def __init__(
        self,
        spark: SparkSession,
        target: Target,
        job: TableJob,
        ceilings: Ceilings,
        small: SmallBatches | None = None,
    ) -> None:
        self._spark = spark
        self._target = target
        self._job = job
        self._ceilings = ceilings
        self._small = small

    def bases(self, wanted: pa.Table, columns: list[str], limits: dict[str, Limit]) -> pa.Table:
        """The mirror's rows for these keys: the columns that are wanted, and the rest of `wanted`."""
        shown = [f"b.{quoted(name)}" for name in wanted.column_names if name not in self._job.key]
        shown += [f"t.{quoted(column)}" for column in columns]
        with view_of(self._spark, wanted) as view:
            found = self._spark.sql(
                f"SELECT /*+ BROADCAST(b) */ {', '.join(shown)} FROM {self._target.sql} t "  # noqa: S608
                f"JOIN {view} b ON {self._limited(limits)}{same_key('t', 'b', self._job.key)}"
            )
            return found.toArrow()

    def apply(self, rows: Upserts, batch_id: str, *, changes: Target | None = None) -> str:
        """Write the rows; says how. `changes` is needed for late truncates alone."""
        is_known = self._small is not None and self._small.knows(self._target, tuple(self._job.key))
        ceiling = None if is_known else self._ceiling(rows)
        done = self._apply(rows, ceiling, changes)
        self._remember(rows, ceiling, batch_id)
        return done

    def _apply(self, rows: Upserts, ceiling: Any, changes: Target | None) -> str:
        if rows.truncated:
            self._spark.sql(f"DELETE FROM {self._target.sql}")  # noqa: S608 - whole files: metadata only
        for truncate in rows.late_truncates:
            self._truncate_late(truncate, changes)
        if not rows.count:
            return "nothing"
        is_new = not self._target.records or self._job.append_only
        is_new = is_new or (rows.inserts_only and _is_above(rows.ends, ceiling))
        if not rows.truncated and not rows.late_truncates and self._is_done_small(rows, is_new):
            return "append" if is_new else "delta"
        if rows.truncated or is_new:
            return self._append(rows)
        if self._target.records <= MERGE_RECORDS_MAX:
            self._merge(rows)
            return "merge"
        self._delete_keys(rows)
        self._append(rows)
        return "replace"

    def _is_done_small(self, rows: Upserts, is_new: bool) -> bool:
        if self._small is None or rows.arrow is None:
            return False
        if self._job.append_only:
            return self._small.append(rows.arrow.drop_columns([DELETE]), self._target)
        look_up = None if is_new else lambda: self._positions(rows)
        return self._small.upsert(rows.arrow, self._target, tuple(self._job.key), look_up)

    def _positions(self, rows: Upserts) -> pa.Table:
        """Where the rows with the batch's keys stand."""
        keys = rows.rows.select(*(quoted(column) for column in self._job.key))
        with view_of(self._spark, keys) as view:
            return self._spark.sql(
                f"SELECT /*+ BROADCAST(b) */ t._file AS file_path, t._pos AS pos "  # noqa: S608
                f"FROM {self._target.sql} t "
                f"JOIN {view} b ON {self._limited(rows.limits)}{same_key('t', 'b', self._job.key)}"
            ).toArrow()

    def _append(self, rows: Upserts) -> str:
        if rows.count > rows.deletes or not rows.small:
            append(rows.kept(), self._target, small=rows.small)
        return "append"

    def _merge(self, rows: Upserts) -> None:
        columns = [name for name in rows.rows.columns if name != DELETE]
        assigned = ", ".join(f"t.{quoted(column)} = b.{quoted(column)}" for column in columns)
        names = ", ".join(quoted(column) for column in columns)
        values = ", ".join(f"b.{quoted(column)}" for column in columns)
        with view_of(self._spark, rows.rows) as view:
            self._spark.sql(
                f"MERGE INTO {self._target.sql} t USING {view} b "  # noqa: S608
                f"ON {self._limited(rows.limits)}{same_key('t', 'b', self._job.key)} "
                f"WHEN MATCHED AND b.{DELETE} THEN DELETE "
                f"WHEN MATCHED THEN UPDATE SET {assigned} "
                f"WHEN NOT MATCHED AND NOT b.{DELETE} THEN INSERT ({names}) VALUES ({values})"
            )

    def _delete_keys(self, rows: Upserts) -> None:
        limited = self._limited(rows.limits)
        if self._are_listed(rows):  # no join is needed to find them
            self._spark.sql(f"DELETE FROM {self._target.sql} t WHERE {limited}true")  # noqa: S608
            return
        keys = rows.rows.select(*(quoted(column) for column in self._job.key))
        with view_of(self._spark, keys) as view:
            self._spark.sql(
                f"DELETE FROM {self._target.sql} t WHERE {limited}"  # noqa: S608
                f"EXISTS (SELECT 1 FROM {view} b WHERE {same_key('t', 'b', self._job.key)})"
            )

    def _are_listed(self, rows: Upserts) -> bool:
        """Whether the condition names every key."""
        (first, *others) = self._job.key
        limit = rows.limits.get(first)
        return not others and limit is not None and bool(limit.listed) and first not in self._target.unordered

    def _truncate_late(self, truncate: LateTruncate, changes: Target | None) -> None:
        assert changes is not None, "a late batch without a changes table is not late"
        names = self._job.names
        self._spark.sql(
            f"DELETE FROM {self._target.sql} t WHERE NOT EXISTS ("  # noqa: S608
            f"SELECT 1 FROM {changes.sql} c WHERE {same_key('t', 'c', self._job.key)} "
            f"AND c.{quoted(names['source'])} = {text_literal(truncate.source)} "
            f"AND c.{quoted(names['position'])} > {text_literal(truncate.position)})"
        )

    def _limited(self, limits: dict[str, Limit]) -> str:
        """Literals in the condition, so that files without these keys are never opened."""
        return "".join(
            f"{within('t', column, limit)} AND "
            for column, limit in limits.items()
            if column not in self._target.unordered
        )

    # -- the largest key

    def _ceiling(self, rows: Upserts) -> Any:
        """None if it is not known, or not of interest."""
        if rows.ends is None or not self._target.records or self._job.append_only:
            return None
        if self._job.key[0] in self._target.unordered:
            return None
        known = self._ceilings.get(self._target.name, (self._target.batch_id, *self._job.key))
        if known is not None or not rows.inserts_only:
            return known
        if not self._ceilings.is_worth_asking(self._target.name):
            return None
        highest = self._highest()
        if not _is_above(rows.ends, highest):
            self._ceilings.was_useless(self._target.name)
        return highest

    def _highest(self) -> Any:
        """No key is above this, by what the manifests say of the files; None if one of them does not say."""
        bound = f"readable_metrics.{quoted(self._job.key[0])}.upper_bound"
        (found,) = self._spark.sql(
            f"SELECT max({bound}) AS highest, count_if({bound} IS NULL) AS unknown "  # noqa: S608
            f"FROM {self._target.sql}.data_files"
        ).collect()
        return found["highest"] if not found["unknown"] else None

    def _remember(self, rows: Upserts, ceiling: Any, batch_id: str) -> None:
        was_empty = rows.truncated or not self._target.records
        if rows.ends is None or (ceiling is None and not was_empty):
            self._ceilings.forget(self._target.name)
            return
        known = rows.ends[1] if was_empty else max(ceiling, rows.ends[1])
        self._ceilings.put(self._target.name, (batch_id, *self._job.key), known)


def _is_above(ends: tuple[Any, Any] | None, ceiling: Any) -> bool:
    return ends is not None and ceiling is not None and bool(ends[0] > ceiling)
