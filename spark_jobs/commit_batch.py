"""A batch from its lease to its publish.

    open a transaction -> prepare the tables -> write all tables side by side -> publish

Nothing is visible before the publish, all of it after. If a table moved meanwhile, the work is done again
in a new transaction; if the lease is lost, it is forgotten.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from spark_jobs.job import BadJob, Job, TableJob
from spark_jobs.known import Known
from spark_jobs.lanes import Lane
from spark_jobs.server import LostLease, Moved, Server, ServerError
from spark_jobs.table_work import TableWork

TRIES_MAX = 5


class Progress:
    """How far a job is: said by those who work, read by the heartbeat, which says if the lease is lost."""

    def __init__(self) -> None:
        self._said: dict[str, Any] = {"stage": "leased"}
        self._lost: str | None = None
        self._lock = threading.Lock()

    def say(self, **facts: Any) -> None:
        with self._lock:
            self._said |= facts

    def done_one(self) -> None:
        with self._lock:
            self._said["done"] = self._said.get("done", 0) + 1

    def said(self) -> dict[str, Any]:
        with self._lock:
            return dict(self._said)

    def lose(self, reason: str) -> None:
        self._lost = reason

    def check(self) -> None:
        """LostLease, if somebody found out."""
        if self._lost is not None:
            raise LostLease(self._lost)


@dataclass(slots=True)
class Outcome:
    """What became of a job. `stages` are milliseconds."""

    number: int | None
    tries: int
    stages: dict[str, int] = field(default_factory=dict)
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)


class CommitBatch:
    """Lands commit jobs in one lane. `tables` runs tables beside each other, `parts` what goes on beside the
    mirror of one; both are shared by all lanes, and nothing in `parts` waits for anything.
    """

    def __init__(
        self, server: Server, lane: Lane, known: Known, *, tables: Executor, parts: Executor
    ) -> None:
        self._server = server
        self._lane = lane
        self._tables = tables
        self._parts = parts
        self._known = known

    def run(self, job: Job, progress: Progress) -> Outcome:
        """LostLease, BadJob, or whatever Spark or the server could not do; nothing is left behind then."""
        if job.kind != "commit":
            raise BadJob(f"this worker knows no jobs of kind {job.kind}")
        if not job.tables:
            raise BadJob("the job has no tables")
        for tried in range(1, TRIES_MAX + 1):
            try:
                return self._try(job, progress, tried)
            except Moved:
                if tried == TRIES_MAX:
                    raise
        raise AssertionError("unreachable")

    def _try(self, job: Job, progress: Progress, tried: int) -> Outcome:
        outcome = Outcome(None, tried)
        timed = _timer(outcome.stages)
        requests = [request for table in job.tables for request in table.requests]
        with timed("open"):
            for request in requests:
                if request.is_outside:
                    self._server.prepare(job.warehouse, "", request)
            prefix = self._server.open_transaction(job.warehouse, self._lane.transaction)
        written: list[str] = []
        try:
            self._lane.mark(job)
            progress.say(stage="prepare", done=0, of=len(job.tables))
            with timed("prepare"):
                for request in requests:
                    if not request.is_outside:
                        self._server.prepare(job.warehouse, prefix, request)
            progress.say(stage="write")
            with timed("write"):
                outcome.tables = self._write(job, prefix, progress, written)
            progress.check()
            progress.say(stage="publish")
            with timed("publish"):
                metrics = {"tries": tried, "stages-ms": outcome.stages, "tables": outcome.tables}
                outcome.number = self._server.publish(job, self._lane.transaction, metrics)
        except BaseException:
            if self._abort(job):
                self._discard(job, written)
            raise
        return outcome

    def _write(
        self, job: Job, prefix: str, progress: Progress, written: list[str]
    ) -> dict[str, dict[str, Any]]:
        """All tables, and in each of them its parts, side by side; a failure is raised when all ended."""

        def start(table: TableJob) -> Mapping[str, Any]:
            progress.check()
            progress.say(table=table.label)
            work = TableWork(self._server, self._lane, self._known, job, table, prefix, written)
            facts = work.run(self._parts)
            progress.done_one()
            return facts

        first, *others = job.tables
        running = [self._tables.submit(start, table) for table in others]
        found: dict[str, dict[str, Any]] = {}
        try:
            found[first.label] = dict(start(first))  # here: a job of one table needs no other thread
        finally:
            wait(running)
        for table, future in zip(others, running, strict=True):
            found[table.label] = dict(future.result())
        return found

    def _discard(self, job: Job, files: list[str]) -> None:
        """The files of a try that came to nothing; beside everything else, because a store that failed may
        hang, and the server must hear of it at once.
        """
        if files:
            delete = self._lane.store(job.warehouse).delete
            threading.Thread(target=delete, args=(files,), name="discard", daemon=True).start()

    def _abort(self, job: Job) -> bool:
        """Whether it is certain that nothing of this try is visible, or will be."""
        try:
            return self._server.abort_transaction(job.warehouse, self._lane.transaction)
        except ServerError:
            # What went wrong is on its way already. The next job of this lane aborts the leftover.
            return False


@contextmanager
def _clock(into: dict[str, int], name: str) -> Iterator[None]:
    started_s = time.monotonic()
    try:
        yield
    finally:
        into[name] = round((time.monotonic() - started_s) * 1000)


def _timer(into: dict[str, int]) -> Callable[[str], Any]:
    return lambda name: _clock(into, name)
