"""Land the batch of one table with a plain MERGE INTO.

It serves tables that tasks cannot write, and tests compare the other way with it. One Spark task reads and
folds the staged rows together with the old rows of their keys; rows do not pass through the driver.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat
from pyiceberg.table.metadata import TableMetadataUtil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BooleanType, DateType, LongType, StructField, StructType

from spark_jobs.landing.fold import BASE, DELETE, Folded, fold
from spark_jobs.landing.late import Changes
from spark_jobs.landing.staged_rows import staged_share
from spark_jobs.messages import STAGED, TableJob, WorkItem
from spark_jobs.tables.commit import quoted
from spark_jobs.tables.data_files import file_io
from spark_jobs.tables.key_files import encode, sorted_keys

# Python's calendar is shorter than Spark's, and its times depend on the machine's time zone, so they are
# passed as numbers.
_NUMBERS = {
    "date": "unix_date({})",
    "timestamp": "unix_micros({})",
    "timestamp_ntz": "unix_micros(CAST({} AS TIMESTAMP))",
}
_TIMES = {
    "date": "date_from_unix_date(CAST({} AS INT))",
    "timestamp": "timestamp_micros({})",
    "timestamp_ntz": "CAST(timestamp_micros({}) AS TIMESTAMP_NTZ)",
}
Rows = Iterable[Any]
Fold = Callable[[Rows], Iterator[pa.Table]]


def merge(spark: SparkSession, item: WorkItem, mirror: str | None, changes: str | None) -> None:
    """Land the whole batch of a table. The tables are given by their SQL names."""
    job = item.job
    old = _old_rows(spark, item, mirror)
    if changes is not None:
        schema = spark.table(changes).schema
        _made(spark, old, partial(_change_rows, item, old.schema), schema).writeTo(changes).append()
    if mirror is None:
        return
    schema = StructType([*spark.table(mirror).schema, StructField(DELETE, BooleanType())])
    rows = _made(spark, old, partial(_mirror_rows, item, old.schema), schema)
    if job.append_only:
        rows.drop(DELETE).writeTo(mirror).append()
        return
    view = f"calve_{uuid.uuid4().hex}"
    rows.createOrReplaceTempView(view)
    names = [quoted(name) for name in schema.names if name != DELETE]
    spark.sql(
        f"MERGE INTO {mirror} t USING {view} b "  # noqa: S608
        f"ON {' AND '.join(f't.{quoted(column)} = b.{quoted(column)}' for column in job.key)} "
        f"WHEN MATCHED AND b.{DELETE} THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET {', '.join(f't.{name} = b.{name}' for name in names)} "
        f"WHEN NOT MATCHED AND NOT b.{DELETE} THEN "
        f"INSERT ({', '.join(names)}) VALUES ({', '.join(f'b.{name}' for name in names)})"
    )
    spark.catalog.dropTempView(view)


def _old_rows(spark: SparkSession, item: WorkItem, mirror: str | None) -> DataFrame:
    """Return the mirror's rows for the keys of the batch; all rows if the batch has a truncate."""
    if mirror is None or item.job.append_only:
        return spark.range(0)
    table = spark.table(mirror)
    if item.job.counts["truncate"]:
        return table
    schema = StructType([table.schema[column] for column in item.job.key])
    keys = _made(spark, spark.range(0), partial(_keys, item), schema)
    same = [table[quoted(column)] == keys[quoted(column)] for column in item.job.key]
    return table.join(keys.hint("broadcast"), same, "left_semi")


def _made(spark: SparkSession, old: DataFrame, rows: Fold, schema: StructType) -> DataFrame:
    """Return the rows that one task computes from the old rows, with this schema."""
    numbers = old.selectExpr(*(_converted(field, _NUMBERS) for field in old.schema)).rdd
    plain = StructType(
        [StructField(f.name, LongType() if f.dataType.typeName() in _TIMES else f.dataType) for f in schema]
    )
    made = numbers.coalesce(1) if numbers.getNumPartitions() else spark.sparkContext.parallelize([], 1)
    found = spark.createDataFrame(
        made.mapPartitions(partial(_tuples, rows, schema)), plain, verifySchema=False
    )
    return found.selectExpr(*(_converted(field, _TIMES) for field in schema))


def _converted(field: StructField, by: dict[str, str]) -> str:
    name = quoted(field.name)
    return f"{by.get(field.dataType.typeName(), '{}').format(name)} AS {name}"


# -- in the task


def _tuples(rows: Fold, schema: StructType, old: Rows) -> Iterator[tuple[Any, ...]]:
    target = to_arrow_schema(schema)
    for table in rows(old):
        columns = []
        for wanted, field in zip(target, schema, strict=True):
            column = pa.nulls(table.num_rows, wanted.type)
            if wanted.name in table.column_names:
                column = table.column(wanted.name).cast(wanted.type)
            if isinstance(field.dataType, DateType):
                column = column.cast(pa.int32())
            elif field.dataType.typeName() in _TIMES:
                column = column.cast(pa.int64())
            columns.append(column.to_pylist())
        yield from zip(*columns, strict=True)


def _keys(item: WorkItem, _: Rows) -> Iterator[pa.Table]:
    yield staged_share(file_io(item.io), item).select(list(item.job.key))


def _change_rows(item: WorkItem, schema: StructType, old: Rows) -> Iterator[pa.Table]:
    changes = _folded(item, _table(old, schema))[0].changes
    assert changes is not None
    yield changes


def _mirror_rows(item: WorkItem, schema: StructType, old: Rows) -> Iterator[pa.Table]:
    folded, gone = _folded(item, _table(old, schema))
    assert folded.mirror is not None
    yield folded.mirror.rows
    if gone is not None:
        yield gone.append_column(DELETE, pa.repeat(pa.scalar(value=True), gone.num_rows))


def _table(rows: Rows, schema: StructType) -> pa.Table:
    found, columns = list(rows), []
    for number, wanted in enumerate(to_arrow_schema(schema)):
        values = [row[number] for row in found]
        is_time = schema[number].dataType.typeName() in _TIMES
        number_type = pa.int32() if isinstance(schema[number].dataType, DateType) else pa.int64()
        columns.append(pa.array(values, number_type if is_time else wanted.type).cast(wanted.type))
    return pa.table(columns, names=schema.names)


def _comparable(staged: pa.Table, job: TableJob) -> pa.Table:
    """Return the rows without -0.0 in a key: the fold would take it for another key than 0.0, and MERGE for
    the same.
    """
    for column in (name for key in job.key for name in (key, f"{STAGED}root_{key}")):
        index = staged.schema.get_field_index(column)
        if index >= 0 and pat.is_floating(staged.schema.field(index).type):
            zero = pa.scalar(0, staged.schema.field(index).type)
            staged = staged.set_column(index, column, pc.add(staged.column(index), zero))
    return staged


def _folded(item: WorkItem, old: pa.Table) -> tuple[Folded, pa.Table | None]:
    """Return the folded batch, and the old rows that a truncate removes."""
    io, job = file_io(item.io), item.job
    staged, known = _comparable(staged_share(io, item), job), None
    if job.late and item.changes is not None:
        known = Changes(TableMetadataUtil.parse_raw(item.changes.metadata), io, job)
    past = known.past_of(staged) if known is not None else None
    if job.mirror is None or job.append_only:
        return fold(staged, job, item.commit_us, past=past), None
    old_keys = encode([old.column(column).cast(staged.schema.field(column).type) for column in job.key])

    def bases(wanted: pa.Table, columns: list[str]) -> pa.Table:
        found, positions = sorted_keys(old_keys).find(encode([wanted.column(column) for column in job.key]))
        return old.take(positions).select(columns).append_column(BASE, wanted.column(BASE).take(found))

    folded = fold(staged, job, item.commit_us, past=past, bases=bases)
    assert folded.mirror is not None
    if not folded.mirror.truncated and not folded.mirror.late_truncates:
        return folded, None
    stays = encode([folded.mirror.rows.column(column) for column in job.key])
    gone = pa.repeat(pa.scalar(folded.mirror.truncated), old.num_rows)
    for truncate in folded.mirror.late_truncates:
        assert known is not None
        gone = pc.or_(gone, pc.invert(pc.is_in(old_keys, known.newer_than(truncate, staged.schema))))
    return folded, old.filter(pc.and_(gone, pc.invert(pc.is_in(old_keys, stays))))
