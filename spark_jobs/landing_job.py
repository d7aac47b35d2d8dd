"""A batch from its lease to its publish.

    open a transaction -> prepare the tables -> one Spark job writes all files -> commit -> publish

Nothing is visible before the publish, all of it after. If a table changed meanwhile, the work is done again
in a new transaction; if the lease is lost, it is given up. Rows never pass through the driver: Spark tasks
read the staged files and write all data and delete files.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JJavaError

from spark_jobs import task
from spark_jobs.commit import BATCH_ID, IcebergTable, quoted
from spark_jobs.compact import Compacted, compact
from spark_jobs.merge import merge
from spark_jobs.messages import BadJob, ItemResult, Job, KeyFileSettings, TableJob, TableState, WorkItem
from spark_jobs.server_client import LostLease, Server, ServerError, TableChanged
from spark_jobs.slot_session import SlotSession
from spark_jobs.table_state import NotServed, TableStates

TRIES_MAX = 5
TASK_ROWS = 50_000  # a batch of more is shared by several tasks, as long as there are cores
TASK_ROWS_MAX = 250_000  # whatever the number of cores


class TaskFailed(Exception):
    """A Spark task failed; the message is the error of the task."""


class Progress:
    """How far a job is: set by those who work, read by the heartbeat, which notes a lost lease."""

    def __init__(self) -> None:
        self._facts: dict[str, Any] = {"stage": "leased"}
        self._lost: str | None = None
        self._lock = threading.Lock()

    def set(self, **facts: Any) -> None:
        with self._lock:
            self._facts |= facts

    def facts(self) -> dict[str, Any]:
        with self._lock:
            return dict(self._facts)

    def lose(self, reason: str) -> None:
        self._lost = reason

    def check(self) -> None:
        """LostLease, if a heartbeat was refused."""
        if self._lost is not None:
            raise LostLease(self._lost)


@dataclass(slots=True)
class Outcome:
    """The result of a job. `stages` are milliseconds."""

    number: int | None
    tries: int
    stages: dict[str, int] = field(default_factory=dict)
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(slots=True)
class _TablePlan:
    """The work on one table: items for tasks, and, where tasks cannot write it, an item for MERGE and why."""

    table: TableJob
    items: list[WorkItem]
    merged: WorkItem | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def written(self) -> list[str]:
        """The tables that tasks write to."""
        states = [state for item in self.items[:1] for state in (item.mirror, item.changes, item.rejects)]
        return [state.name for state in states if state is not None]


class LandingJob:
    """Lands jobs in one worker slot. `pool`, `states` and `compacted` are shared by all slots."""

    def __init__(
        self,
        server: Server,
        slot: SlotSession,
        pool: Executor,
        states: TableStates,
        compacted: Compacted,
        key_files: KeyFileSettings | None = None,
    ) -> None:
        self._server = server
        self._slot = slot
        self._pool = pool
        self._states = states
        self._compacted = compacted
        self._key_files = key_files or KeyFileSettings()

    def run(self, job: Job, progress: Progress) -> Outcome:
        """LostLease, BadJob, or the error of Spark or of the server; nothing is left behind then."""
        if job.kind != "commit":
            raise BadJob(f"this worker knows no jobs of kind {job.kind}")
        if not job.tables:
            raise BadJob("the job has no tables")
        for tried in range(1, TRIES_MAX + 1):
            try:
                return _Try(self, job, progress, tried).run()
            except TableChanged:
                if tried == TRIES_MAX:
                    raise
        raise AssertionError("unreachable")


class _Try:
    """One try of a job, in a transaction of its own."""

    def __init__(self, landing: LandingJob, job: Job, progress: Progress, tried: int) -> None:
        self._server = landing._server  # noqa: SLF001 - parts of one class
        self._slot = landing._slot  # noqa: SLF001
        self._pool = landing._pool  # noqa: SLF001
        self._states = landing._states  # noqa: SLF001
        self._compacted = landing._compacted  # noqa: SLF001
        self._key_files = landing._key_files  # noqa: SLF001
        self._job = job
        self._progress = progress
        self._outcome = Outcome(None, tried)
        self._paths: list[str] = []  # of all files that tasks wrote
        self._prefix = ""

    def run(self) -> Outcome:
        job, outcome = self._job, self._outcome
        requests = [request for table in job.tables for request in table.requests]
        with self._stage("open"):
            for request in requests:
                if request.is_outside:
                    self._server.prepare(job.warehouse, "", request)
            self._prefix = self._server.open_transaction(job.warehouse, self._slot.transaction)
        try:
            with self._stage("prepare"):
                for request in requests:
                    if not request.is_outside:
                        self._server.prepare(job.warehouse, self._prefix, request)
            with self._stage("plan"):
                plans = self._each(job.tables, self._plan)
            self._write(plans)
            self._progress.check()
            with self._stage("publish"):
                outcome.tables = {plan.table.label: plan.facts for plan in plans}
                metrics = {
                    "tries": outcome.tries,
                    "stages-ms": outcome.stages,
                    "write-ms": outcome.stages["write"],
                    "tables": outcome.tables,
                }
                outcome.number = self._server.publish(job, self._slot.transaction, metrics)
        except BaseException:
            if self._abort():
                self._discard()
            raise
        return outcome

    # -- planning

    def _plan(self, table: TableJob) -> _TablePlan:
        plan = _TablePlan(table, [], facts={"events": table.events} if table.files else {})
        whole = WorkItem(
            job=table,
            commit_us=self._job.commit_timestamp_us,
            io=self._slot.stores.io_properties(self._job.warehouse),
            key_files=self._key_files,
        )
        if table.files and (table.mirror is not None or table.changes is not None):
            mirror = self._document(table, table.mirror, plan.facts)
            changes = self._document(table, table.changes, plan.facts)
            try:
                plan.items = self._shares(whole, mirror, changes)
            except NotServed as error:
                known = self._changes(table, changes) if table.late else None
                plan.merged = whole.model_copy(update={"changes": known})
                plan.facts |= {"by": "merge", "why": str(error)}
        if table.rejects is not None and table.rejects.files:
            rejects = self._states.appended(table.rejects.name, self._load(table, table.rejects.name))
            if not plan.items:
                plan.items = [whole.model_copy(update={"job": table.model_copy(update={"files": ()})})]
            plan.items[0] = plan.items[0].model_copy(update={"rejects": rejects})
        return plan

    def _shares(
        self, whole: WorkItem, mirror: dict[str, Any] | None, changes: dict[str, Any] | None
    ) -> list[WorkItem]:
        """The items of a table. NotServed if tasks cannot write it."""
        table = whole.job
        state = self._states.mirror(str(table.mirror), mirror, self._io(), table) if mirror else None
        states = {"mirror": state, "changes": self._changes(table, changes)}
        shares = self._share_count(table)
        return [
            whole.model_copy(update={**states, "share": share, "shares": shares}) for share in range(shares)
        ]

    def _changes(self, table: TableJob, document: dict[str, Any] | None) -> TableState | None:
        if document is None:
            return None
        return self._states.appended(str(table.changes), document, is_read=table.late)

    def _document(self, table: TableJob, name: str | None, facts: dict[str, Any]) -> dict[str, Any] | None:
        """The metadata of a table, after a compaction if one is due."""
        if name is None:
            return None
        document = self._load(table, name)
        where = (self._job.warehouse, *table.namespace, name)
        if not self._compacted.is_due(where, document):
            return document
        started_s = time.monotonic()
        failure = compact(self._slot.spark, self._slot.catalog(self._job.warehouse), where)
        if failure is not None:
            facts["compact-failure"] = failure
        document = self._load(table, name)
        self._compacted.note(where, document)
        facts["compact-ms"] = round((time.monotonic() - started_s) * 1000)
        return document

    def _load(self, table: TableJob, name: str) -> dict[str, Any]:
        return self._server.load_table(self._prefix, table.namespace, name)

    def _io(self) -> Any:
        return self._slot.stores.io(self._job.warehouse)

    def _share_count(self, table: TableJob) -> int:
        """How many tasks the batch of a table asks for."""
        if table.has_absent and table.has_moves:
            return 1  # a value may come from the row of any other key
        if table.late and table.counts["truncate"]:
            return 1  # it looks at all keys of the mirror
        cores = self._slot.spark.sparkContext.defaultParallelism
        wanted = min(-(-table.events // TASK_ROWS), cores)
        return max(1, wanted, -(-table.events // TASK_ROWS_MAX))

    # -- writing

    def _write(self, plans: Sequence[_TablePlan]) -> None:
        by_tasks = [plan for plan in plans if plan.items]
        items = [item for plan in by_tasks for item in plan.items]
        self._progress.set(stage="write", tables=len(plans), tasks=len(items))
        with self._stage("write"):
            # Iceberg's library loads the tables while the tasks run.
            loading = {
                (plan.table.label, name): self._pool.submit(self._loaded, plan.table, name)
                for plan in by_tasks
                for name in plan.written
            }
            results = self._run_tasks(items) if items else []
            self._paths += [path for result in results for path in result.paths]
            for bad in (result.bad_job for result in results if result.bad_job is not None):
                raise BadJob(bad)
        self._progress.check()
        self._progress.set(stage="commit", files=len(self._paths), bytes=sum(r.bytes for r in results))
        with self._stage("commit"):
            self._each(by_tasks, lambda plan: self._commit(plan, results, loading))
        for plan in plans:
            if plan.merged is not None:
                with self._stage("merge"):
                    self._merge(plan, plan.merged)

    def _loaded(self, table: TableJob, name: str) -> IcebergTable:
        return IcebergTable(self._slot.spark, self._sql_name(table, name))

    def _sql_name(self, table: TableJob, name: str) -> str:
        return quoted(self._slot.catalog(self._job.warehouse), *table.namespace, name)

    def _run_tasks(self, items: Sequence[WorkItem]) -> list[ItemResult]:
        """One Spark job for all tables."""
        context = self._slot.spark.sparkContext
        context.setJobDescription(f"batch {self._job.batch_id}: {len(self._job.tables)} tables")
        parts = min(len(items), 2 * context.defaultParallelism)
        try:
            return context.parallelize(items, parts).map(task.run).collect()
        except Py4JJavaError as error:
            raise TaskFailed(_error_of_task(error)) from error

    def _commit(
        self,
        plan: _TablePlan,
        results: Sequence[ItemResult],
        loading: Mapping[tuple[str, str], Future[IcebergTable]],
    ) -> None:
        """The snapshots of one table: its changes, its mirror, its rejects."""
        own = [result for result in results if result.table == plan.table.label]
        summary = {BATCH_ID: self._job.batch_id}

        def commit(name: str) -> None:
            described = [text for result in own for text in result.files.get(name, ())]
            truncated = name == plan.table.mirror and any(result.truncated for result in own)
            loading[plan.table.label, name].result().commit(described, truncated=truncated, summary=summary)

        for name in plan.written:
            commit(name)
        plan.facts = _facts_of(own) | plan.facts

    def _merge(self, plan: _TablePlan, item: WorkItem) -> None:
        """A table that tasks cannot write."""
        table = plan.table
        mirror = self._sql_name(table, table.mirror) if table.mirror is not None else None
        changes = self._sql_name(table, table.changes) if table.changes is not None else None
        started_s = time.monotonic()
        self._slot.mark({BATCH_ID: self._job.batch_id})
        merge(self._slot.spark, item, mirror, changes)
        plan.facts["merge-ms"] = round((time.monotonic() - started_s) * 1000)

    def _each(self, given: Sequence[Any], do: Callable[[Any], Any]) -> list[Any]:
        """For all at the same time; a failure is raised when all have ended."""
        if len(given) == 1:
            return [do(given[0])]
        running = [self._pool.submit(do, one) for one in given]
        failures = [failure for future in running if (failure := future.exception()) is not None]
        if failures:
            raise failures[0]
        return [future.result() for future in running]

    # -- the end

    def _discard(self) -> None:
        """Delete the files of this try; beside everything else, because a store that failed may hang, and
        the server must hear of it at once.
        """
        if not self._paths:
            return
        io, paths = self._io(), list(self._paths)

        def delete() -> None:
            for path in paths:
                with contextlib.suppress(OSError):  # the removal of orphans finds it
                    io.delete(path)

        threading.Thread(target=delete, name="discard", daemon=True).start()

    def _abort(self) -> bool:
        """Whether it is certain that nothing of this try is visible, or will be."""
        try:
            return self._server.abort_transaction(self._job.warehouse, self._slot.transaction)
        except ServerError:
            # The failure that led here is being raised. The next job of this slot aborts the leftover.
            return False

    @contextlib.contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        self._progress.set(stage=name)
        started_s = time.monotonic()
        try:
            yield
        finally:
            self._outcome.stages[name] = round((time.monotonic() - started_s) * 1000)


def _facts_of(results: Sequence[ItemResult]) -> dict[str, Any]:
    """What a table's tasks did; the times are those of the slowest."""
    facts: dict[str, Any] = {"by": "tasks", "tasks": len(results)}
    for name in ("rows", "deleted", "rejects", "repeated", "bytes"):
        count = sum(getattr(result, name) for result in results)
        if count:
            facts[name] = count
    facts["files"] = sum(len(result.paths) for result in results)
    for step in sorted({step for result in results for step in result.times_ms}):
        facts[f"{step}-ms"] = max(result.times_ms.get(step, 0) for result in results)
    return facts


def _error_of_task(error: Py4JJavaError) -> str:
    """The last line of the Python traceback of a task, or what Spark says."""
    text = str(error)
    _, found, traceback = text.partition("Traceback (most recent call last):")
    lines = [line for line in traceback.partition("\n\n")[0].splitlines() if line.strip()]
    return lines[-1] if found and lines else text.partition("\n\tat ")[0]
