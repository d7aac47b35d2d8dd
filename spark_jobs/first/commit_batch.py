"""A job from its lease to its publish.

Everything happens inside one open transaction of the catalog: tables are made or changed, the history is
appended to, mirrors are brought up to date, what could not land goes to the rejects. The publish makes all of it
visible at once, together with the watermarks and the end of the job. Whatever fails before it leaves nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from spark_jobs.first import staged
from spark_jobs.first.fold import Folded, Key, Row, fold, keys_of, needed_from_mirror
from spark_jobs.first.job import Job, TableWork, is_outside
from spark_jobs.first.mirror import (
    append,
    delete_all,
    delete_keys,
    frame,
    quoted,
    rows_of_keys,
    total_rows,
    with_commit_time,
)
from spark_jobs.first.server import Moved, Server
from spark_jobs.session import S3Options

ATTEMPTS_MAX = 5
RESERVED = {
    "operation": "_calve_operation",
    "source-timestamp": "_calve_source_timestamp",
    "source": "_calve_source",
    "position": "_calve_position",
    "transaction": "_calve_transaction",
    "event-id": "_calve_event_id",
    "before": "_calve_before",
}

Progress = Callable[[str, str, int, int], None]  # stage, table, done, of


@dataclass
class Lane:
    """One slot of a worker: a Spark session and a catalog whose warehouse is its open transaction."""

    server: Server
    spark: SparkSession
    slot: int
    transaction: str
    catalog_of: Callable[[str], str]  # the Spark catalog of a warehouse's transaction
    s3: S3Options | None
    threads: ThreadPoolExecutor
    # The largest key of a mirror, and the snapshot of which that is known.
    largest: dict[tuple[str, ...], tuple[Any, int]] = field(default_factory=dict)


def commit_batch(lane: Lane, job: Job, progress: Progress) -> tuple[int | None, dict[str, Any]]:
    """The number that the batch became visible under, and how long each stage took."""
    for attempt in range(ATTEMPTS_MAX):
        try:
            return _once(lane, job, progress)
        except Moved:
            lane.server.abort(job.warehouse, lane.transaction)
            lane.largest.clear()
            if attempt + 1 == ATTEMPTS_MAX:
                raise
        except BaseException:
            lane.largest.clear()
            raise
    raise AssertionError("unreachable")


def _once(lane: Lane, job: Job, progress: Progress) -> tuple[int | None, dict[str, Any]]:
    began_s = time.monotonic()
    requests = [request for table in job.tables for request in table.requests]
    # What is made in the warehouse itself comes first: the transaction sees what was there when it was opened.
    for request in requests:
        if is_outside(request):
            lane.server.prepare(job.warehouse, lane.transaction, request)
    lane.server.open(job.warehouse, lane.transaction)
    for request in requests:
        if not is_outside(request):
            lane.server.prepare(job.warehouse, lane.transaction, request)
    prepared_s = time.monotonic()
    works = [_TableCommit(lane, job, table) for table in job.tables]
    waiting: list[Future[None]] = [
        lane.threads.submit(step) for number, work in enumerate(works) for step in work.steps(number)
    ]
    for done, step in enumerate(waiting):
        progress("write", "", done, len(waiting))
        step.result()
    written_s = time.monotonic()
    metrics = {
        "events": sum(table.events for table in job.tables),
        "tables": len(job.tables),
        "prepare-ms": round((prepared_s - began_s) * 1000),
        "write-ms": round((written_s - prepared_s) * 1000),
    }
    progress("publish", "", len(waiting), len(waiting))
    number = lane.server.publish(job, lane.transaction, metrics)
    for work in works:
        work.published()
    metrics["publish-ms"] = round((time.monotonic() - written_s) * 1000)
    return number, metrics


class _TableCommit:
    """The writes of one table: its history, its mirror and its rejects are different tables, written at once."""

    def __init__(self, lane: Lane, job: Job, work: TableWork) -> None:
        self._lane = lane
        self._job = job
        self._work = work
        self._catalog = lane.catalog_of(job.warehouse)
        self._learned: tuple[Any, int] | None = None

    def steps(self, number: int) -> list[Callable[[], None]]:
        """What can be done side by side; each in a thread of its own."""
        work = self._work
        found: list[Callable[[], None]] = []
        if work.files:
            batch = staged.read(work.files, self._lane.s3)
            folded = self._folded(batch, f"calve_{self._lane.slot}_{number}")
            if work.changes is not None and len(folded.changes):
                found.append(lambda: self._append_changes(folded.changes))
            if work.mirror is not None:
                found.append(lambda: self._update_mirror(folded, f"calve_{self._lane.slot}_{number}_m"))
        if work.rejects is not None:
            found.append(self._append_rejects)
        return found

    def published(self) -> None:
        if self._learned is not None:
            self._lane.largest[self._place()] = self._learned

    # -- what the fold needs to know

    def _folded(self, batch: pa.Table, view: str) -> Folded:
        work = self._work
        if work.append_only or not work.key:
            return Folded(batch, batch.select(list(work.columns)), batch.select([]), truncated=False)
        base = self._base(batch, view) if (work.has_absent or work.has_moves) and work.mirror else None
        newest, seen = self._history(batch, view) if work.late and work.changes else ({}, set())
        return fold(batch, work.columns, work.key, base=base, newest=newest, seen=seen)

    def _base(self, batch: pa.Table, view: str) -> dict[Key, Row]:
        """The rows of the mirror from which missing values come."""
        work = self._work
        assert work.mirror is not None
        keys = needed_from_mirror(batch, work.key)
        if not keys or not self._rows(work.mirror):
            return {}
        wanted = pa.table(
            [
                pa.array([row[place] for row in keys], batch.schema.field(name).type)
                for place, name in enumerate(work.key)
            ],
            names=list(work.key),
        )
        columns = list(work.columns)
        found = rows_of_keys(self._lane.spark, self._target(work.mirror), wanted, columns, f"{view}_base")
        found = found.cast(pa.schema([batch.schema.field(name) for name in columns]))
        rows = found.to_pylist()
        return {tuple(row[name] for name in work.key): row for row in rows}

    def _history(self, batch: pa.Table, view: str) -> tuple[dict[tuple[str, Key], str], set[str]]:
        """What the history has of the keys of this batch: the newest position of each, and the events."""
        work = self._work
        assert work.changes is not None
        if not self._rows(work.changes):
            return {}, set()
        keyed = batch.filter(pc.not_equal(batch["_calve_operation"], "truncate"))
        keys = keyed.select(list(work.key)).group_by(list(work.key)).aggregate([])
        names = [work.names[name] for name in ("source", "position", "event-id")]
        columns = [*work.key, *names]
        found = rows_of_keys(self._lane.spark, self._target(work.changes), keys, columns, f"{view}_past")
        types = pa.schema(
            [*(batch.schema.field(name) for name in work.key), *((n, pa.string()) for n in names)]
        )
        found = found.cast(types)
        newest: dict[tuple[str, Key], str] = {}
        sources, positions = (found[name].to_pylist() for name in names[:2])
        for own, source, position in zip(keys_of(found, work.key), sources, positions, strict=True):
            mark = (source or "", own)
            if position and position > newest.get(mark, ""):
                newest[mark] = position
        return newest, {event for event in found[names[2]].to_pylist() if event}

    def _rows(self, name: str) -> int | None:
        return total_rows(self._metadata(name))

    def _metadata(self, name: str) -> dict[str, Any]:
        lane = self._lane
        return lane.server.table(self._job.warehouse, lane.transaction, self._work.namespace, name)

    # -- writes

    def _append_changes(self, changes: pa.Table) -> None:
        work = self._work
        assert work.changes is not None
        rows = frame(self._lane.spark, changes.select([*work.columns, *RESERVED.values()]))
        chosen = [F.col(quoted(name)) for name in work.columns]
        chosen += [F.col(column).alias(work.names[name]) for name, column in RESERVED.items()]
        rows = with_commit_time(rows.select(*chosen), work.names["commit-timestamp"], self._job.commit_us)
        append(rows, len(changes), self._target(work.changes), self._job.batch_id)

    def _update_mirror(self, folded: Folded, view: str) -> None:
        work = self._work
        assert work.mirror is not None
        spark, target, before = self._lane.spark, self._target(work.mirror), self._metadata(work.mirror)
        if folded.truncated:
            delete_all(spark, target)
        elif len(folded.gone) and not self._is_new(folded, before):
            delete_keys(spark, target, folded.gone, view)
        if len(folded.upserts):
            rows = frame(spark, folded.upserts, work.key)
            rows = with_commit_time(rows, work.names["commit-timestamp"], self._job.commit_us)
            append(rows, len(folded.upserts), target, self._job.batch_id)
        self._learn(folded, before)

    def _is_new(self, folded: Folded, before: dict[str, Any]) -> bool:
        """Whether it is certain that no key of the batch is in the mirror."""
        if self._work.first_load or total_rows(before) == 0:
            return True
        largest = self._largest(folded, before)
        return largest is not None and pc.min(folded.gone[0]).as_py() > largest

    def _largest(self, folded: Folded, before: dict[str, Any]) -> int | None:
        """The largest key of the mirror, if this lane has seen all of it and nobody has written since."""
        if len(self._work.key) != 1 or not pa.types.is_integer(folded.gone.schema.field(0).type):
            return None
        known = self._lane.largest.get(self._place())
        return known[1] if known is not None and known[0] == before.get("current-snapshot-id") else None

    def _learn(self, folded: Folded, before: dict[str, Any]) -> None:
        largest = self._largest(folded, before)
        if total_rows(before) == 0 and len(self._work.key) == 1:
            largest = -(2**63) if pa.types.is_integer(folded.gone.schema.field(0).type) else None
        if largest is None or not len(folded.gone):
            return
        after = self._metadata(str(self._work.mirror)).get("current-snapshot-id")
        self._learned = (after, max(largest, pc.max(folded.gone[0]).as_py()))

    def _append_rejects(self) -> None:
        rejects = self._work.rejects
        assert rejects is not None
        rows = staged.read(rejects.files, self._lane.s3)
        append(frame(self._lane.spark, rows), len(rows), self._target(rejects.name), self._job.batch_id)

    def _target(self, name: str) -> str:
        return quoted(self._catalog, *self._work.namespace, name)

    def _place(self) -> tuple[str, ...]:
        return (self._job.warehouse, *self._work.namespace, self._work.name)
