"""The rows of a batch for its mirror as Spark has them: a DataFrame, and what the driver knows of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from spark_jobs.fold import DELETE, LateTruncate, MirrorRows
from spark_jobs.job import STAGED, TableJob
from spark_jobs.sql_text import LISTED_MAX, Limit, limit_between, limit_listing, quoted
from spark_jobs.staged import Large, frame


@dataclass(frozen=True, slots=True)
class Upserts:
    """`rows` has the columns of the mirror, and `DELETE`; one row of each key, unless rows are only appended.
    Spark gets them when they are first asked for: a batch that the driver writes itself never sends them.

    `ends` are the smallest and the largest key, where there is one key column and its values can be compared.
    """

    frame: Callable[[], DataFrame]
    count: int
    deletes: int
    inserts_only: bool = False
    truncated: bool = False
    late_truncates: tuple[LateTruncate, ...] = ()
    limits: dict[str, Limit] = field(default_factory=dict)  # of the key columns
    ends: tuple[Any, Any] | None = None
    small: bool = True
    arrow: pa.Table | None = None  # the same rows, where the driver has them

    @property
    def rows(self) -> DataFrame:
        return self.frame()

    def kept(self) -> DataFrame:
        """What the mirror has afterwards."""
        kept = self.rows.where(f"NOT {DELETE}") if self.deletes else self.rows
        return kept.drop(DELETE)


def of_arrow(spark: SparkSession, folded: MirrorRows, job: TableJob) -> Upserts:
    ends = {column: _ends(folded.rows.column(column)) for column in job.key}
    return Upserts(
        cache(lambda: frame(spark, folded.rows)),
        folded.rows.num_rows,
        folded.deletes,
        inserts_only=folded.inserts_only,
        truncated=folded.truncated,
        late_truncates=folded.late_truncates,
        limits=limits_of(folded.rows, job.key),
        ends=_comparable(ends, folded.rows.schema, job),
        arrow=folded.rows,
    )


def of_files(spark: SparkSession, large: Large, job: TableJob, commit_us: int) -> Upserts:
    """For batches without gaps, key changes, truncates and late events."""
    ends = {column: large.ends(column) for column in job.key}
    stamp = F.timestamp_micros(F.lit(commit_us)).alias(job.names["commit-timestamp"])
    columns = [F.col(quoted(column)) for column in job.columns]
    operation = F.col(f"{STAGED}operation")
    rows = large.frame(spark)
    if job.append_only:
        rows = rows.where(operation != "delete")
    else:
        last = f"{STAGED}last"
        keys = [quoted(column) for column in job.key]
        window = Window.partitionBy(*keys).orderBy(F.col(f"{STAGED}seq").desc())
        rows = rows.withColumn(last, F.row_number().over(window)).where(F.col(last) == 1)
    deletes = 0 if job.append_only else job.counts["delete"]
    selected = rows.select(*columns, stamp, (operation == "delete").alias(DELETE))
    return Upserts(
        lambda: selected,
        large.rows,
        deletes,
        inserts_only=not deletes and not job.counts["update"],
        limits=_limits(ends, large.schema),
        ends=_comparable(ends, large.schema, job),
        small=False,
    )


def change_frame(rows: DataFrame, job: TableJob, commit_us: int) -> DataFrame:
    """The rows of the changes table, from staged ones."""
    columns = [F.col(quoted(column)) for column in job.columns]
    told = [
        (
            F.timestamp_micros(F.lit(commit_us))
            if name == "commit-timestamp"
            else F.col(f"{STAGED}{name.replace('-', '_')}")
        ).alias(called)
        for name, called in job.names.items()
    ]
    return rows.select(*columns, *told)


def limits_of(rows: pa.Table, columns: Sequence[str]) -> dict[str, Limit]:
    """What the values of each column are, or lie between, where they can be written as literals."""
    found = _limits({column: _ends(rows.column(column)) for column in columns}, rows.schema)
    for column in found:
        values = pc.drop_null(pc.unique(rows.column(column)))
        if len(values) <= LISTED_MAX:
            with contextlib.suppress(ValueError):  # nanoseconds, which Python's times do not have
                found[column] = limit_listing(values.sort().to_pylist(), values.type) or found[column]
    return found


def _ends(column: pa.ChunkedArray) -> tuple[Any, Any] | None:
    """The smallest and the largest value; None if there is none, or no order."""
    if len(column) == column.null_count or not _is_orderable(column.type):
        return None
    found = pc.min_max(column)
    try:
        return found["min"].as_py(), found["max"].as_py()
    except (OverflowError, ValueError):
        return None  # a day beyond Python's calendar


def _limits(ends: dict[str, tuple[Any, Any] | None], schema: pa.Schema) -> dict[str, Limit]:
    found = {
        column: limit_between(*found, schema.field(column).type)
        for column, found in ends.items()
        if found is not None
    }
    return {column: limit for column, limit in found.items() if limit is not None}


def _comparable(
    ends: dict[str, tuple[Any, Any] | None], schema: pa.Schema, job: TableJob
) -> tuple[Any, Any] | None:
    """Instants are left out: Spark hands them over in the machine's own zone."""
    if len(job.key) != 1 or pat.is_timestamp(schema.field(job.key[0]).type):
        return None
    return ends[job.key[0]]


def _is_orderable(type_: pa.DataType) -> bool:
    kinds = (pat.is_integer, pat.is_string, pat.is_decimal, pat.is_date32, pat.is_timestamp)
    return any(is_kind(type_) for is_kind in kinds)
