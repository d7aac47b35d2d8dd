"""Asks the changes table about the events of a late batch: which are there already, and what is newer.

The answers are at most as large as the batch: Spark looks for the batch's events and keys only, behind the
oldest position of the batch.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import SparkSession

from spark_jobs.job import STAGED, TableJob
from spark_jobs.merge import view_of
from spark_jobs.past import Past, keys_of, texts
from spark_jobs.sql_text import quoted, same_key, text_literal
from spark_jobs.targets import Target


def past_of(spark: SparkSession, changes: Target, table: pa.Table, job: TableJob) -> Past:
    """`table` is the staged batch."""
    if not changes.records:
        return Past()
    known = _known(spark, changes, table, job)
    if job.mirror is None or job.append_only:
        return Past(known)
    return Past(known, *_newest(spark, changes, table, job))


def _known(
    spark: SparkSession, changes: Target, table: pa.Table, job: TableJob
) -> frozenset[tuple[str, str]]:
    source, position, event = (quoted(job.names[name]) for name in ("source", "position", "event-id"))
    events = pa.table(
        [table.column(f"{STAGED}source"), table.column(f"{STAGED}event_id")], names=["source", "event"]
    )
    positions = texts(table, "position")
    with view_of(spark, events) as view:
        rows = spark.sql(
            f"SELECT DISTINCT c.{source} AS source, c.{event} AS event "  # noqa: S608
            f"FROM {changes.sql} c WHERE {_sources(table, job)} AND c.{position} "
            f"BETWEEN {text_literal(min(positions))} AND {text_literal(max(positions))} AND EXISTS "
            f"(SELECT 1 FROM {view} b WHERE b.source = c.{source} AND b.event = c.{event} AND b.event <> '')"
        ).collect()
    return frozenset((row["source"], row["event"]) for row in rows)


def _newest(
    spark: SparkSession, changes: Target, table: pa.Table, job: TableJob
) -> tuple[dict[tuple[str, object], str], dict[str, str]]:
    """The newest position of each source and key, and the newest truncate of each source."""
    source, position = quoted(job.names["source"]), quoted(job.names["position"])
    is_truncate = f"c.{quoted(job.names['operation'])} = 'truncate'"
    keys = [f"c.{quoted(column)}" for column in job.key]
    grouped = ", ".join([f"c.{source}", is_truncate, *keys])
    shown = ", ".join([*keys, f"c.{source} AS {STAGED}source", f"{is_truncate} AS {STAGED}operation"])
    oldest = min((place for place in texts(table, "position") if place), default="")
    with view_of(spark, table.select(list(job.key))) as view:
        of_batch = f"EXISTS (SELECT 1 FROM {view} b WHERE {same_key('b', 'c', job.key)})"  # noqa: S608
        found = spark.sql(
            f"SELECT {shown}, max(c.{position}) AS {STAGED}position FROM {changes.sql} c "  # noqa: S608
            f"WHERE {_sources(table, job)} AND c.{position} > {text_literal(oldest)} "
            f"AND ({is_truncate} OR {of_batch}) GROUP BY {grouped}"
        ).toArrow()
    for column in job.key:  # as the batch has them, so that equal keys are equal
        place = found.schema.get_field_index(column)
        found = found.set_column(place, column, found.column(column).cast(table.schema.field(column).type))
    newest: dict[tuple[str, object], str] = {}
    emptied: dict[str, str] = {}
    facts = zip(
        found.column(f"{STAGED}operation").to_pylist(),
        texts(found, "source"),
        keys_of(found, job.key),
        texts(found, "position"),
        strict=True,
    )
    for truncate, where, key, newer in facts:
        if truncate:
            emptied[where] = newer
        else:
            newest[where, key] = newer
    return newest, emptied


def _sources(table: pa.Table, job: TableJob) -> str:
    names = sorted(set(texts(table, "source")))
    return f"c.{quoted(job.names['source'])} IN ({', '.join(text_literal(name) for name in names)})"
