"""Stage the next batch that is due as a job, and the one after it in advance.

One batch is cut at a time in this process, although several slots of a worker may request one at the same
time.

A table is in one job at a time, because a batch builds on the result of the one before it. That result is
mostly known: the same columns, a higher journal id, newer watermarks. So while a worker writes one batch, the
files of the next are written. A prestaged batch is kept in this process only, claims no table, and is used
only if all its assumptions were right.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from prometheus_client import Counter, Histogram

from catalog import faults
from catalog.errors import CatalogError
from ingest.change import TableName
from ingest.journal.dead_letters import DeadLetters
from ingest.landing.batches import STAGING_LEASE_S, BatchCutter
from ingest.staging.context import BatchRange, CannotStage, Expected, NeedsConversion, StagedBatch
from ingest.staging.process import StagingProcess
from ingest.store.jobs import Jobs, PublishPlan
from ingest.store.tables import TableAdvance

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that was leased here, with what the next batch may build on."""

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
    """At most one batch is prestaged at a time. `running` are jobs that may get a successor."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._running: dict[str, RunningJob] = {}
        self._lock = threading.Lock()
        self.waiting: PrestagedBatch | None = None

    def begun(self, batch_range: BatchRange, batch: StagedBatch) -> None:
        """Record a leased job and its tables, which the next batch can build on."""
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
        """Return the jobs that are still being landed."""
        with self._lock:
            found = [one for one in self._running.values() if one.warehouse in warehouses]
        for one in found:
            if self._jobs.state(one.job_id) not in ("leased", "ready"):
                self.ended(one.job_id)  # published through another server, or given back
        return [one for one in found if one.job_id in self._running]

    def take(self, warehouses: Collection[str]) -> tuple[PrestagedBatch | None, PrestagedBatch | None]:
        """Return (the prestaged batch that can be used now, the one that can never be used)."""
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
    """Return whether the job changes only rows of the table."""
    return table is not None and not table["requests"] and table["rejects"] is None and bool(table["events"])


LEASE_S = 30.0
CONVERT = "convert"  # the kind of a job that converts columns


class JobStaging:
    def __init__(
        self,
        jobs: Jobs,
        cutter: BatchCutter,
        staging_process: StagingProcess,
        landing_metrics: LandingMetrics,
        delete: Callable[[Sequence[str]], None],
        dead_letters: DeadLetters,
    ) -> None:
        self._jobs = jobs
        self._cutter = cutter
        self._process = staging_process
        self._metrics = landing_metrics
        self._delete = delete
        self._dead_letters = dead_letters
        self._busy = threading.Lock()
        self.prestaging = Prestaging(jobs)
        # Why the last staging of a table failed, by warehouse and table, until one succeeds.
        self.staging_error: dict[tuple[str, TableName], str] = {}

    def next_job(self, worker: str, warehouses: Collection[str]) -> dict[str, Any] | None:
        """Return the next batch that is due, as a job that this worker has leased."""
        if not self._busy.acquire(blocking=False):
            return None
        try:
            job = self._prestaged_job(worker, warehouses)
            if job is not None:
                return job
            for warehouse in warehouses:
                batch_range = self._cutter.cut(warehouse, worker)
                if batch_range is not None:
                    return self._begin(batch_range, worker)
            self._prestage_next(warehouses)
        finally:
            self._busy.release()
        return None

    def _begin(self, batch_range: BatchRange, worker: str) -> dict[str, Any] | None:
        try:
            with self._kept(batch_range):
                batch = self._process.stage(batch_range)
        except NeedsConversion as needed:
            self._jobs.forget(batch_range.job_id, 1)
            return self._conversion_job(batch_range.warehouse, worker, needed)
        except CatalogError as error:
            only = error.table if isinstance(error, CannotStage) else None
            self.staging_error |= {
                (batch_range.warehouse, table): error.message
                for table in (batch_range.ranges if only is None else (only,))
            }
            self._metrics.failed("stage")
            _log.warning(
                "a batch cannot be staged", extra={"job": batch_range.job_id, "reason": error.message}
            )
            self._cutter.back_off(batch_range, only)
            self._jobs.forget(batch_range.job_id, 1)
            return None
        except BaseException:
            self._cutter.back_off(batch_range)
            self._jobs.forget(batch_range.job_id, 1)
            raise
        for table in batch_range.ranges:
            self.staging_error.pop((batch_range.warehouse, table), None)
        return self._leased(batch_range, batch)

    def _conversion_job(self, warehouse: str, worker: str, needed: NeedsConversion) -> dict[str, Any] | None:
        """Return a job that converts columns. The changes stay in the journal and are staged again after it;
        the other tables of the batch do not wait.
        """
        job_id = uuid.uuid4().hex
        if not self._jobs.begin(job_id, warehouse, worker, [needed.table], LEASE_S):
            return None  # another server claimed it first
        described = {
            "id": job_id,
            "kind": CONVERT,
            "warehouse": warehouse,
            "lease-s": LEASE_S,
            "namespace": list(needed.table[:-1]),
            "name": needed.table[-1],
            "names": needed.tables,
            "columns": needed.columns,
            "tables": [],
        }
        landing = PublishPlan(0, [], []).encode()
        if not self._jobs.staged(job_id, 1, orjson.dumps(described), landing, LEASE_S):
            return None
        progress = {"converting": ".".join(needed.table), "columns": needed.columns, "stage": "leased"}
        self._jobs.extend(job_id, 1, progress, LEASE_S)
        return described | {"epoch": 1}

    def _leased(self, batch_range: BatchRange, batch: StagedBatch) -> dict[str, Any] | None:
        faults.reach("job.staged")
        description = orjson.dumps(
            {
                "id": batch_range.job_id,
                "kind": "commit",
                "warehouse": batch_range.warehouse,
                "batch-id": batch_range.job_id,
                "commit-timestamp-us": batch.commit_us,
                "lease-s": LEASE_S,
                "tables": batch.tables,
            }
        )
        landing = PublishPlan(batch.commit_us, batch.files, batch.steps).encode()
        if not self._jobs.staged(batch_range.job_id, 1, description, landing, LEASE_S):
            self._delete(batch.files)
            self._dead_letters.discard(batch_range.job_id)
            return None
        self.prestaging.begun(batch_range, batch)
        answer: dict[str, Any] = orjson.loads(description)
        return answer | {"epoch": 1}

    # -- a batch that was staged while the one before it was landed

    def _prestaged_job(self, worker: str, warehouses: Collection[str]) -> dict[str, Any] | None:
        """Return the prestaged batch as a job, once the job before it is published."""
        due, void = self.prestaging.take(warehouses)
        if void is not None:
            self._delete(void.batch.files)
        if due is None:
            return None
        batch_range = due.batch_range
        if not self._jobs.begin(
            batch_range.job_id, batch_range.warehouse, worker, list(batch_range.ranges), STAGING_LEASE_S
        ):
            self._delete(due.batch.files)  # another server claimed it first
            return None
        if self._is_still_current(due):
            return self._leased(batch_range, due.batch)
        self._jobs.forget(batch_range.job_id, 1)
        self._delete(due.batch.files)
        return None

    def _is_still_current(self, due: PrestagedBatch) -> bool:
        try:
            return self._process.is_current(due.batch_range, due.batch)
        except CatalogError as error:  # the staging process or a database failed: it is cut again
            _log.warning("a prestaged batch is lost", extra={"reason": error.message})
            return False
        except BaseException:
            self._jobs.forget(due.batch_range.job_id, 1)
            raise

    def _prestage_next(self, warehouses: Collection[str]) -> None:
        """Stage what waits after a job that is being landed, if it is much and nothing else is due."""
        if self.prestaging.waiting is not None:
            return
        for running in self.prestaging.running(warehouses):
            batch_range = self._cutter.cut_next(
                running.warehouse, {t: s.to_id for t, s in running.steps.items()}
            )
            if batch_range is None:
                continue
            try:
                batch = self._process.prestage(batch_range, running.expected(batch_range.ranges))
            except CatalogError as error:
                # It is staged again when it is due, and then fails or succeeds by itself.
                _log.info("a batch was not prestaged", extra={"reason": error.message})
                batch = None
            if batch is None:
                self.prestaging.ended(running.job_id)  # do not try again after this job
            else:
                self.prestaging.waiting = PrestagedBatch(batch_range, batch, running)
            return

    @contextlib.contextmanager
    def _kept(self, batch_range: BatchRange) -> Iterator[None]:
        """Extend the claim on the tables while their files are written."""
        over = threading.Event()

        def keep() -> None:
            while not over.wait(STAGING_LEASE_S / 4):
                try:
                    self._jobs.keep_staging(batch_range.job_id, 1, STAGING_LEASE_S)
                except CatalogError as error:
                    _log.warning(
                        "a claim was not renewed", extra={"job": batch_range.job_id, "reason": error.message}
                    )

        keeper = threading.Thread(target=keep, name="staging-lease", daemon=True)
        keeper.start()
        try:
            yield
        finally:
            over.set()
            keeper.join()


# -- metrics

SECONDS = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 20.0, 40.0, 60.0, 120.0, 300.0)
EVENTS = (1, 10, 100, 1_000, 5_000, 10_000, 50_000, 100_000, 500_000)

_visible = Histogram(
    "calve_landing_visible_seconds",
    "Time from the acknowledgement of a batch's oldest change to its visibility.",
    buckets=SECONDS,
)
_events = Histogram("calve_landing_batch_events", "Changes in one published batch.", buckets=EVENTS)
_write = Histogram(
    "calve_landing_write_seconds", "Time that Spark took to write and merge a batch.", buckets=SECONDS
)
# Files and bytes on disk for each byte landed: the quotients of these, less what maintenance deletes.
_staged_bytes = Counter("calve_landing_change_bytes_total", "Bytes of the changes that batches landed.")
_files = Counter("calve_landing_files_total", "Data and delete files that batches wrote.")
_bytes = Counter("calve_landing_bytes_total", "Bytes of the files that batches wrote.")
_failures = Counter(
    "calve_landing_failures_total", "Batches that could not be staged, written or published.", ("at",)
)


class LandingMetrics:
    def published(self, steps: Sequence[TableAdvance], metrics: dict[str, Any]) -> None:
        now_ms = time.time_ns() // 1_000_000
        oldest_ms = min((step.oldest_ms for step in steps if step.oldest_ms), default=now_ms)
        _visible.observe(max(0.0, (now_ms - oldest_ms) / 1000))
        _events.observe(sum(step.events for step in steps))
        for facts in (metrics.get("tables") or {}).values():
            for counter, name in ((_staged_bytes, "staged-bytes"), (_files, "files"), (_bytes, "bytes")):
                counter.inc(facts.get(name, 0) if isinstance(facts, dict) else 0)
        took_ms = metrics.get("write-ms")
        if isinstance(took_ms, int | float):
            _write.observe(took_ms / 1000)

    def failed(self, at: str) -> None:
        _failures.labels(at).inc()


class Wakeup:
    """Wakes waiting requests. `wake` may be called from any thread; `wait` from any event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    @property
    def count(self) -> int:
        """Return how often `wake` was called. Read it before a check, so that no later event is missed."""
        return self._count

    def wake(self) -> None:
        with self._lock:
            self._count += 1
            waiting = list(self._waiting)
        for loop, event in waiting:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and the request with it
                loop.call_soon_threadsafe(event.set)

    async def wait(self, count: int, timeout_s: float) -> None:
        """Wait until `wake` was called more often than `count`, or the timeout is over."""
        mine = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            if self._count != count:
                return
            self._waiting.add(mine)
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(mine[1].wait(), timeout_s)
        finally:
            with self._lock:
                self._waiting.discard(mine)
