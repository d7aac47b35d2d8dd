"""Land one batch, from its lease to its publish.

    plan -> one Spark job writes all files -> prepare one commit for each table -> publish all of them

The lease contains the tables, and the publish contains the commits, so a batch takes two requests. Nothing is
visible before the publish, and everything is visible after it. If a table has changed meanwhile, the job
starts again with the new state. If the lease is lost, the job is abandoned. Rows never pass through the
driver: Spark tasks read the staged files and write all data and delete files.

Tables that tasks cannot write are merged by SQL in an open transaction, which then contains all commits.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JJavaError
from pyiceberg.io import FileIO

from spark_jobs.landing import task
from spark_jobs.landing.merge import merge
from spark_jobs.landing.planning import Planner, TablePlan
from spark_jobs.messages import (
    BadJob,
    ItemResult,
    Job,
    KeyFileSettings,
    LeasedTable,
    TableJob,
    WorkItem,
)
from spark_jobs.progress import Progress
from spark_jobs.rewrite import rebuild
from spark_jobs.server_client import LostLease, Server, ServerError, TableChange, TableChanged
from spark_jobs.slot_session import SlotSession
from spark_jobs.tables.batch_checksums import reported
from spark_jobs.tables.commit import BATCH_ID, Prepared, quoted
from spark_jobs.tables.table_state import TableStates

TRIES_MAX = 5


class TaskFailed(Exception):
    """A Spark task failed; the message is the error of the task."""


@dataclass(slots=True)
class Outcome:
    """The result of a job. `stages` are in milliseconds."""

    number: int | None
    tries: int
    stages: dict[str, int] = field(default_factory=dict)
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)


class LandingJob:
    """Lands jobs in one worker slot. All slots share `pool` and `states`."""

    def __init__(
        self,
        server: Server,
        slot: SlotSession,
        pool: Executor,
        states: TableStates,
        key_files: KeyFileSettings | None = None,
    ) -> None:
        self.server = server
        self.slot = slot
        self.pool = pool
        self.states = states
        self.key_files = key_files or KeyFileSettings()
        self._unsure: _Try | None = None

    def run(self, job: Job, progress: Progress) -> Outcome:
        """Land the job. Raises LostLease, BadJob, or the error of Spark or of the server."""
        if job.kind not in ("commit", rebuild.KIND):
            raise BadJob(f"this worker knows no jobs of kind {job.kind}")
        if not job.tables:
            raise BadJob("the job has no tables")
        for tried in range(1, TRIES_MAX + 1):
            attempt = _Try(self, job, progress, tried)
            try:
                return attempt.run()
            except BaseException as error:
                self._unsure = None if attempt.discard_after(error) else attempt
                if not isinstance(error, TableChanged) or tried == TRIES_MAX:
                    raise
            job = self.server.renewed(job)
        raise AssertionError("unreachable")

    def discard(self) -> None:
        """Delete the files of the last attempt.

        Call it only after the server has accepted that the job failed. Then a publish whose response was lost
        has not happened, and will not happen.
        """
        attempt, self._unsure = self._unsure, None
        if attempt is not None:
            attempt.discard()


class _Try:
    """One attempt at a job."""

    def __init__(self, landing: LandingJob, job: Job, progress: Progress, tried: int) -> None:
        self._server = landing.server
        self._slot = landing.slot
        self._pool = landing.pool
        self._states = landing.states
        self._key_files = landing.key_files
        self._job = job
        self._progress = progress
        self._outcome = Outcome(None, tried)
        self._paths: list[str] = []  # of all files that tasks wrote
        self._prepared: list[Prepared] = []
        self._is_sent = False
        self._transaction: str | None = None  # the name of the open transaction, if there is one

    def run(self) -> Outcome:
        outcome = self._outcome
        common = WorkItem(
            job=self._job.tables[0],
            commit_us=self._job.commit_timestamp_us,
            io=self._slot.stores.io_properties(self._job.warehouse),
            key_files=self._key_files,
        )
        if self._job.kind == rebuild.KIND:
            plans, results = self._rebuild(common)
        else:
            with self._stage("plan"):
                cores = self._slot.spark.sparkContext.defaultParallelism
                planner = Planner(self._states, self._io(), cores, common)
                plans = self._each(self._job.tables, planner.plan)
            results = self._write(plans)
        self._progress.check()
        with self._stage("commit"):
            changes = self._changes(plans, results)
        merged = [plan for plan in plans if plan.merged is not None]
        if merged:
            with self._stage("merge"):
                self._merge(merged, changes)
            self._progress.check()
        with self._stage("publish"):
            outcome.tables = {plan.table.label: plan.facts for plan in plans}
            metrics = {
                "tries": outcome.tries,
                "stages-ms": outcome.stages,
                "write-ms": outcome.stages["write"],
                "tables": outcome.tables,
            }
            self._is_sent = True
            outcome.number = self._server.publish(self._job, changes, metrics, transaction=self._transaction)
        return outcome

    def _io(self) -> Any:
        return self._slot.stores.io(self._job.warehouse)

    # -- writing

    def _rebuild(self, common: WorkItem) -> tuple[list[TablePlan], list[ItemResult]]:
        """Rebuild the mirror of one table from its changes table."""
        (table,) = self._job.tables
        item = rebuild.item_of(table, common, self._states)
        context = self._slot.spark.sparkContext
        context.setJobDescription(f"rebuild {table.label}")

        def run() -> list[ItemResult]:
            return rebuild.write(context, item, self._io(), self._progress.watch)

        results = self._written(run)
        return [TablePlan(table, [item.model_copy(update={"changes": None})])], results

    def _write(self, plans: Sequence[TablePlan]) -> list[ItemResult]:
        items = [item for plan in plans for item in plan.items]
        self._progress.set(stage="write", tables=len(plans), tasks=len(items))
        return self._written(lambda: self._run_tasks(items) if items else [])

    def _written(self, run: Callable[[], list[ItemResult]]) -> list[ItemResult]:
        with self._stage("write"):
            try:
                results = run()
            except Py4JJavaError as error:
                raise TaskFailed(_error_of_task(error)) from error
            self._paths += [path for result in results for path in result.paths]
        for bad in (result.bad_job for result in results if result.bad_job is not None):
            raise BadJob(bad)
        for error_of_task in (result.error for result in results if result.error is not None):
            raise TaskFailed(error_of_task)
        self._progress.set(files=len(self._paths), bytes=sum(result.bytes for result in results))
        return results

    def _run_tasks(self, items: Sequence[WorkItem]) -> list[ItemResult]:
        """Run one Spark job for all tables."""
        context = self._slot.spark.sparkContext
        context.setJobDescription(f"batch {self._job.batch_id}: {len(self._job.tables)} tables")
        parts = min(len(items), 2 * context.defaultParallelism)
        work = context.parallelize(items, parts)
        if any(item.shares > 1 and item.has_vectors for item in items):
            grouped = work.flatMap(task.first_stage).groupByKey(parts)
            return grouped.mapPartitions(task.second_stage).collect()
        return work.map(task.run).collect()

    def _changes(self, plans: Sequence[TablePlan], results: Sequence[ItemResult]) -> list[TableChange]:
        """Return the commits of all tables that tasks wrote to. Sends nothing."""
        own: dict[str, list[ItemResult]] = {}
        for result in results:
            own.setdefault(result.table, []).append(result)
        work = [(plan.table, name, own[plan.table.label]) for plan in plans for name in plan.written]
        made = self._each(work, lambda one: self._change(*one)) if work else []
        made += [
            table_change(plan.table.namespace, name, plan.table.states[name], None)
            for plan in plans
            if plan.table.schema_only
            for name in plan.table.written
            if name not in plan.written
        ]
        for plan in plans:
            if plan.items:
                plan.facts = _facts_of(own[plan.table.label]) | plan.facts
        return [change for change in made if change is not None]

    def _change(self, table: TableJob, name: str, results: Sequence[ItemResult]) -> TableChange | None:
        state = table.states[name]
        prepared = self._slot.committer.prepare(
            state.metadata,
            self._slot.java_io(self._job.warehouse),
            [text for result in results for text in result.files.get(name, ())],
            [text for result in results for text in result.removed] if name == table.mirror else [],
            truncated=name == table.mirror and any(result.truncated for result in results),
            summary={BATCH_ID: self._job.batch_id},
        )
        if prepared is not None:
            self._prepared.append(prepared)
            self._pool.submit(_delete, self._io(), prepared.unused)
        return table_change(table.namespace, name, state, prepared)

    def _merge(self, plans: Sequence[TablePlan], changes: Sequence[TableChange]) -> None:
        """Merge the tables that tasks cannot write, in one transaction with the commits of the others."""
        warehouse, self._transaction = self._job.warehouse, self._slot.transaction
        prefix = self._server.open_transaction(warehouse, self._transaction)
        self._progress.transaction = self._transaction
        prepared = [
            table_change(plan.table.namespace, name, plan.table.states[name], None)
            for plan in plans
            for name in (plan.table.mirror, plan.table.changes)
            if name is not None
        ]
        together = [*changes, *(change for change in prepared if change is not None)]
        if together:
            self._server.commit(prefix, together)
        self._slot.mark({BATCH_ID: self._job.batch_id})
        for plan in plans:
            assert plan.merged is not None
            started_s = time.monotonic()
            mirror, changes_name = (
                self._sql_name(plan.table, name) for name in (plan.table.mirror, plan.table.changes)
            )
            merge(self._slot.spark, plan.merged, mirror, changes_name)
            plan.facts["merge-ms"] = round((time.monotonic() - started_s) * 1000)

    def _sql_name(self, table: TableJob, name: str | None) -> str | None:
        if name is None:
            return None
        return quoted(self._slot.catalog(self._job.warehouse), *table.namespace, name)

    def _each(self, given: Sequence[Any], do: Callable[[Any], Any]) -> list[Any]:
        """Run `do` for all items at the same time. A failure is raised after all have ended."""
        if len(given) == 1:
            return [do(given[0])]
        running = [self._pool.submit(do, one) for one in given]
        failures = [failure for future in running if (failure := future.exception()) is not None]
        if failures:
            raise failures[0]
        return [future.result() for future in running]

    # -- the end

    def discard_after(self, error: BaseException) -> bool:
        """Delete the files if it is certain that no part of this attempt is visible or will be. Returns
        whether it was certain.
        """
        if self._transaction is not None:
            is_certain = self._abort()
        elif self._is_sent:
            is_refused = isinstance(error, LostLease) and error.status == 409
            is_certain = is_refused or (isinstance(error, TableChanged) and error.is_certain)
        else:
            is_certain = True
        if is_certain:
            self.discard()
        return is_certain

    def discard(self) -> None:
        """Delete the files of this attempt in a thread: a failed store may hang, and the failure must be
        reported to the server at once.
        """
        if not self._paths:
            return
        io, paths, prepared = self._io(), list(self._paths), list(self._prepared)

        def delete() -> None:
            _delete(io, paths)
            for one in prepared:
                _delete(io, one.files())

        threading.Thread(target=delete, name="discard", daemon=True).start()

    def _abort(self) -> bool:
        """Abort the transaction. Returns whether it was open: then none of its changes became visible."""
        try:
            return self._server.abort_transaction(self._job.warehouse, str(self._transaction))
        except ServerError:
            # The error that led here is being raised. The next job of this slot aborts the transaction.
            return False

    @contextlib.contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        self._progress.set(stage=name)
        started_s = time.monotonic()
        try:
            yield
        finally:
            self._outcome.stages[name] = round((time.monotonic() - started_s) * 1000)


def _delete(io: FileIO, paths: Sequence[str]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):  # the removal of orphan files deletes it later
            io.delete(path)


def table_change(
    namespace: Sequence[str], name: str, state: LeasedTable, prepared: Prepared | None
) -> TableChange | None:
    """Return a commit in the form of the REST specification: the updates that create the table as it was
    leased, then the new snapshot. None if there is nothing to commit.
    """
    if prepared is None and not state.updates:
        return None
    requirements, updates = list(state.requirements), list(state.updates)
    if prepared is not None:
        updates += prepared.updates
        if not state.is_new:
            requirements += prepared.requirements
    return {
        "identifier": {"namespace": list(namespace), "name": name},
        "requirements": requirements,
        "updates": updates,
    }


def _facts_of(results: Sequence[ItemResult]) -> dict[str, Any]:
    """Return what the tasks of a table did; times are those of the slowest task."""
    facts: dict[str, Any] = {"by": "tasks", "tasks": len(results)}
    for name in ("rows", "deleted", "rejects", "repeated", "lost", "staged_bytes", "bytes"):
        count = sum(getattr(result, name) for result in results)
        if count:
            facts[name.replace("_", "-")] = count
    clashes = sum(result.clashes for result in results)
    if clashes:
        facts["clashes"] = {"count": clashes, "differing": [one for r in results for one in r.differing][:20]}
    facts |= reported(results)
    facts["files"] = sum(len(result.paths) for result in results)
    for step in sorted({step for result in results for step in result.times_ms}):
        facts[f"{step}-ms"] = max(result.times_ms.get(step, 0) for result in results)
    return facts


def _error_of_task(error: Py4JJavaError) -> str:
    """Return the last line of the Python traceback of a task, or Spark's message."""
    text = str(error)
    _, found, traceback = text.partition("Traceback (most recent call last):")
    lines = [line for line in traceback.partition("\n\n")[0].splitlines() if line.strip()]
    return lines[-1] if found and lines else text.partition("\n\tat ")[0]
