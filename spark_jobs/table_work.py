"""The work on one table of a batch, inside the transaction: its changes, its mirror, its rejects."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from spark_jobs.fold import Folded, fold
from spark_jobs.job import Job, TableJob
from spark_jobs.known import Known
from spark_jobs.lanes import Lane
from spark_jobs.late import past_of
from spark_jobs.merge import Mirror, append
from spark_jobs.server import Server
from spark_jobs.small_batches import SmallBatches
from spark_jobs.sql_text import quoted
from spark_jobs.staged import Large, frame
from spark_jobs.targets import Target, target_from
from spark_jobs.tidying import tidy
from spark_jobs.upserts import Upserts, change_frame, limits_of, of_arrow, of_files


class TableWork:
    """`run` says what was done: counts, the strategy, and milliseconds of each step. `written` gets the paths
    of files that the driver wrote itself.
    """

    def __init__(
        self,
        server: Server,
        lane: Lane,
        known: Known,
        job: Job,
        table: TableJob,
        prefix: str,
        written: list[str],
    ) -> None:
        self.label = table.label
        self._server = server
        self._spark = lane.spark
        self._store = lane.store(job.warehouse)
        self._catalog = lane.catalog(job.warehouse)
        self._known = known
        self._small = SmallBatches(
            lane.spark, self._store, known.indexes, dict(lane.said), job.commit_timestamp_us, written
        )
        self._job = job
        self._table = table
        self._prefix = prefix
        self._facts: dict[str, Any] = {}

    def run(self, parts: Executor) -> Mapping[str, Any]:
        """`parts` runs what can go on beside the mirror."""
        table = self._table
        if table.files and (table.mirror is not None or table.changes is not None):
            self._facts["events"] = table.events
            rows = self._rows()
            if rows is not None:
                self._write_rows(rows, parts)
            else:
                self._write_large(parts)
        if table.rejects is not None and table.rejects.files:
            with self._timed("rejects"):
                self._write_rejects(table.rejects.name, table.rejects.files)
        return self._facts

    def _rows(self) -> pa.Table | None:
        """The staged rows; None if they are many and the executors can do without the driver."""
        table = self._table
        # Completing, and looking at the past, need the keys on the driver.
        whole = table.has_absent or table.late or bool(table.counts["truncate"])
        with self._timed("read"):
            return self._store.load(table.files, whole=whole)

    def _write_rows(self, rows: pa.Table, parts: Executor) -> None:
        table = self._table
        with self._timed("look"):
            changes = self._tidy(self._target(table.changes))
            target = self._tidy(self._target(table.mirror))
        mirror = self._mirror(target, small=True) if target is not None else None
        folded = self._folded(rows, changes, mirror, target)
        if folded.repeated:
            self._facts["repeated"] = folded.repeated

        def write_changes() -> None:
            if changes is not None and folded.changes is not None and folded.changes.num_rows:
                with self._timed("changes"):
                    self._append(folded.changes, changes)

        def write_mirror() -> None:
            if mirror is not None and folded.mirror is not None and not folded.mirror.is_nothing:
                with self._timed("mirror"):
                    upserts = of_arrow(self._spark, folded.mirror, table)
                    self._apply(mirror, upserts, changes)

        if table.late:  # a late truncate looks at the changes as they were
            write_mirror()
            write_changes()
        else:
            self._both(write_changes, write_mirror, parts)

    def _folded(
        self, rows: pa.Table, changes: Target | None, mirror: Mirror | None, target: Target | None
    ) -> Folded:
        table = self._table
        past = None
        if table.late and changes is not None:
            with self._timed("past"):
                past = past_of(self._spark, changes, rows, table)

        def bases(wanted: pa.Table, columns: list[str]) -> pa.Table:
            assert mirror is not None
            with self._timed("bases"):
                return mirror.bases(wanted, columns, limits_of(wanted, table.key))

        filled = mirror is not None and target is not None and target.records > 0 and not table.append_only
        with self._timed("fold"):
            return fold(
                rows, table, self._job.commit_timestamp_us, past=past, bases=bases if filled else None
            )

    def _write_large(self, parts: Executor) -> None:
        with self._store.large(self._table.files) as large:
            if large is None:
                rows = self._store.load(self._table.files, whole=True)
                assert rows is not None
                self._write_rows(rows, parts)
            else:
                self._write_files(large, parts)

    def _write_files(self, large: Large, parts: Executor) -> None:
        table, commit_us = self._table, self._job.commit_timestamp_us
        changes, target = self._target(table.changes), self._target(table.mirror)

        def write_changes() -> None:
            if changes is not None:
                with self._timed("changes"):
                    append(change_frame(large.frame(self._spark), table, commit_us), changes, small=False)

        def write_mirror() -> None:
            if target is not None:
                with self._timed("mirror"):
                    upserts = of_files(self._spark, large, table, commit_us)
                    self._apply(self._mirror(target, small=False), upserts, None)

        self._both(write_changes, write_mirror, parts)

    def _both(self, write_changes: Any, write_mirror: Any, parts: Executor) -> None:
        """Two tables, so two commits that do not meet: side by side."""
        beside: Future[None] | None = None
        if self._table.changes is not None and self._table.mirror is not None:
            beside = parts.submit(write_changes)
        else:
            write_changes()
        try:
            write_mirror()
        finally:
            if beside is not None:
                beside.result()

    def _tidy(self, target: Target | None) -> Target | None:
        """The table with its small files joined, if they are many."""
        if target is None or not self._known.tidied.is_due(target):
            return target
        with self._timed("tidy"):
            failure = tidy(self._spark, self._catalog, target)
        if failure is not None:
            self._facts["tidy-failure"] = failure
        after = self._target(target.name[-1])
        assert after is not None
        self._known.tidied.note(after)
        return after

    def _mirror(self, target: Target, *, small: bool) -> Mirror:
        ways = self._small if small and self._known.small else None
        return Mirror(self._spark, target, self._table, self._known.ceilings, ways)

    def _append(self, rows: pa.Table, target: Target) -> None:
        if not (self._known.small and self._small.append(rows, target)):
            append(frame(self._spark, rows), target)

    def _apply(self, mirror: Mirror, upserts: Upserts, changes: Target | None) -> None:
        self._facts["strategy"] = mirror.apply(upserts, self._job.batch_id, changes=changes)
        self._facts["rows"] = upserts.count

    def _write_rejects(self, name: str, files: tuple[str, ...]) -> None:
        target = self._target(name)
        rows = self._store.load(files, whole=True)
        assert target is not None
        assert rows is not None
        self._facts["rejects"] = rows.num_rows
        self._append(rows, target)

    def _target(self, name: str | None) -> Target | None:
        if name is None:
            return None
        table = self._table
        metadata = self._server.load_table(self._prefix, table.namespace, name)
        return target_from(
            metadata,
            (self._job.warehouse, *table.namespace, name),
            quoted(self._catalog, *table.namespace, name),
            table.names["commit-timestamp"],
        )

    @contextmanager
    def _timed(self, step: str) -> Iterator[None]:
        started_s = time.monotonic()
        try:
            yield
        finally:
            self._facts[f"{step}-ms"] = round((time.monotonic() - started_s) * 1000)
