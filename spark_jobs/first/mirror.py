"""Writes with Spark: rows appended, and a mirror brought up to date.

A mirror has one row for each key. Rows of a batch replace those of the same key by a delete of the keys and an
append, two snapshots inside one transaction of which readers see the last: a MERGE with inserts would shuffle
the whole table, a delete only scans its keys. Where it is certain that no key is there yet, only the append is
done.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

LITERALS_MAX = 500  # keys up to here stand in the statement; more are joined
ROWS_PER_FILE = 500_000


def quoted(*parts: str) -> str:
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def frame(spark: SparkSession, table: pa.Table, key: Sequence[str] = ()) -> DataFrame:
    """The rows in Spark. Key columns are said to be never null, as the mirror wants them."""
    schema = pa.schema(
        [field.with_nullable(field.name not in key and field.nullable) for field in table.schema]
    )
    return spark.createDataFrame(table.cast(schema) if key else table)


def append(rows: DataFrame, count: int, target: str, batch_id: str) -> None:
    """Add rows by name. Small batches go into one file: nothing is gained by a shuffle."""
    writer = (
        rows.coalesce(max(1, count // ROWS_PER_FILE))
        .writeTo(target)
        .option("distribution-mode", "none")
        .option("fanout-enabled", "true")
        .option("check-nullability", "false")
        .option("snapshot-property.calve.batch-id", batch_id)
    )
    writer.append()


def delete_all(spark: SparkSession, target: str) -> None:
    spark.sql(f"DELETE FROM {target}")


def delete_keys(spark: SparkSession, target: str, gone: pa.Table, view: str) -> None:
    """Remove the rows of these keys, wherever they are."""
    key = gone.column_names
    literals = [_literals(gone[name]) for name in key]
    if len(key) == 1 and literals[0] is not None and len(gone) <= LITERALS_MAX:
        spark.sql(f"DELETE FROM {target} WHERE {quoted(key[0])} IN ({', '.join(literals[0])})")
        return
    frame(spark, gone).createOrReplaceTempView(view)
    same = " AND ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in key)
    bounds = "".join(_bounds(gone[name], name) for name in key)
    chosen = ", ".join(quoted(name) for name in key)
    spark.sql(
        f"MERGE INTO {target} t USING (SELECT /*+ BROADCAST({view}) */ {chosen} FROM {view}) s "
        f"ON {same}{bounds} WHEN MATCHED THEN DELETE"
    )


def with_commit_time(rows: DataFrame, column: str, commit_us: int) -> DataFrame:
    return rows.withColumn(column, F.timestamp_micros(F.lit(commit_us)))


def rows_of_keys(
    spark: SparkSession, target: str, keys: pa.Table, columns: Sequence[str], view: str, where: str = ""
) -> pa.Table:
    """The rows of a table that have one of these keys, in the driver's memory."""
    frame(spark, keys).createOrReplaceTempView(view)
    same = " AND ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in keys.column_names)
    bounds = "".join(_bounds(keys[name], name) for name in keys.column_names)
    chosen = ", ".join(f"t.{quoted(name)}" for name in columns)
    return spark.sql(
        f"SELECT /*+ BROADCAST(s) */ {chosen} FROM {target} t JOIN {view} s ON {same}{bounds}{where}"
    ).toArrow()


def total_rows(metadata: Mapping[str, Any]) -> int | None:
    """How many rows a table has, deletes not counted off; 0 if it is empty, None if it does not say."""
    current = metadata.get("current-snapshot-id")
    if current in (None, -1):
        return 0
    for snapshot in metadata.get("snapshots", ()):
        if snapshot["snapshot-id"] == current:
            total = snapshot.get("summary", {}).get("total-records")
            return int(total) if total is not None else None
    return None


def _bounds(column: pa.ChunkedArray, name: str) -> str:
    """The smallest and largest key as literals: files without them are not read."""
    if len(column) == 0 or not _orderable(column.type):
        return ""
    low, high = pc.min_max(column).as_py().values()
    texts = [_literal(low, column.type), _literal(high, column.type)]
    if None in texts:
        return ""
    return f" AND t.{quoted(name)} BETWEEN {texts[0]} AND {texts[1]}"


def _orderable(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(type_)
        or pa.types.is_string(type_)
        or pa.types.is_date(type_)
        or pa.types.is_decimal(type_)
        or pa.types.is_timestamp(type_)
    )


def _literals(column: pa.ChunkedArray) -> list[str] | None:
    if len(column) > LITERALS_MAX:
        return None
    found = [_literal(value, column.type) for value in column.to_pylist()]
    return None if None in found else [text for text in found if text is not None]


def _literal(value: Any, type_: pa.DataType) -> str | None:
    """A key value as SQL; None where that is not certain to mean the same."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int) and pa.types.is_integer(type_):
        return f"{value}L" if pa.types.is_int64(type_) and value > -(2**63) else None
    if isinstance(value, Decimal):
        return f"CAST('{value}' AS DECIMAL({type_.precision},{type_.scale}))"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return f"DATE'{value.isoformat()}'" if value.year > 1582 else None
    return None


def _text(value: str) -> str | None:
    """Only plain texts: escapes in literals depend on settings."""
    if len(value) > 200 or not value.isascii() or not value.isprintable() or "\\" in value or "'" in value:
        return None
    return f"'{value}'"
