"""The next batch of a table, staged while the one before it is still being landed.

A table is in one job at a time, because a batch builds on the result of the one before it. That result is
mostly known: the same columns, a higher journal id, newer watermarks. So while a worker writes one batch, the
files of the next are written. A prestaged batch is kept in this process only, claims no table, and is used
only if all its assumptions were right.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from ingest.change import TableName
from ingest.staging.context import BatchRange, Expected, StagedBatch
from ingest.store.jobs import Jobs
from ingest.store.tables import TableAdvance


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that was leased here, as far as a next batch may build on it."""

    job_id: str
    warehouse: str
    commit_us: int
    steps: dict[TableName, TableAdvance]

    def expected(self, tables: Collection[TableName]) -> Expected:
        return Expected(self.commit_us, {table: self.steps[table] for table in tables})


@dataclass(frozen=True, slots=True)
class PrestagedBatch:
    """A batch that waits for the job before it."""

    batch_range: BatchRange
    batch: StagedBatch
    after: RunningJob


class Prestaging:
    """At most one batch waits at a time. `running` are jobs that may get a successor."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._running: dict[str, RunningJob] = {}
        self._lock = threading.Lock()
        self.waiting: PrestagedBatch | None = None

    def begun(self, batch_range: BatchRange, batch: StagedBatch) -> None:
        """A job was leased; what it says of its tables is what the next batch can build on."""
        known = {_name(table): table for table in batch.tables}
        steps = {step.table: step for step in batch.steps if _is_plain(known.get(step.table))}
        if steps:
            with self._lock:
                self._running[batch_range.job_id] = RunningJob(
                    batch_range.job_id, batch_range.warehouse, batch.commit_us, steps
                )

    def ended(self, job_id: str) -> None:
        with self._lock:
            self._running.pop(job_id, None)

    def running(self, warehouses: Collection[str]) -> list[RunningJob]:
        """Those that are still being landed."""
        with self._lock:
            found = [one for one in self._running.values() if one.warehouse in warehouses]
        for one in found:
            if self._jobs.state(one.job_id) not in ("leased", "ready"):
                self.ended(one.job_id)  # published through another server, or given up
        return [one for one in found if one.job_id in self._running]

    def take(self, warehouses: Collection[str]) -> tuple[PrestagedBatch | None, PrestagedBatch | None]:
        """(the batch whose turn it is, the one whose turn will never come)."""
        one = self.waiting
        if one is None or one.batch_range.warehouse not in warehouses:
            return None, None
        state = self._jobs.state(one.after.job_id)
        if state in ("leased", "ready"):
            return None, None
        self.waiting = None
        return (one, None) if state == "done" else (None, one)


def _name(table: dict[str, Any]) -> TableName:
    return (*table["namespace"], table["name"])


def _is_plain(table: dict[str, Any] | None) -> bool:
    """Whether the job leaves the table as it is, but for its rows."""
    return table is not None and not table["requests"] and table["rejects"] is None and bool(table["events"])
