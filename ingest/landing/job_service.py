"""The jobs of workers: lease, extend, fail, publish.

A publish is one SQL transaction: it sets the new metadata of the tables, how far each has landed and the
watermarks, and ends the job. After a crash it has happened completely or not at all, and a repeat finds out
which.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import sqlalchemy as sa

from catalog import faults
from catalog.errors import CatalogError, Conflict, NotFound, Unavailable
from catalog.services.catalog import Catalog
from catalog.store.entries import InTransaction
from ingest.change import TableName
from ingest.journal.journal import Journal
from ingest.landing.batches import WRITE_PUT_OFF_S_MAX, BatchCutter
from ingest.landing.job_staging import CONVERT, LEASE_S, JobStaging, LandingMetrics, Wakeup
from ingest.landing.job_states import with_states
from ingest.landing.rebuild import KIND as REBUILD
from ingest.landing.rebuild import Rebuilds
from ingest.staging.context import UNROUTED, BatchRange
from ingest.staging.process import StagingProcess
from ingest.store.checksums import ReportedChecksums, note_checksums
from ingest.store.jobs import Job, Jobs, LostLease, PublishPlan, finish
from ingest.store.mirrors import Snapshot, note
from ingest.store.tables import CHANGES_SUFFIX, land, save_head

_log = logging.getLogger(__name__)

ATTEMPTS_MAX = 4  # failures of one job before its tables are cut anew
SEEN_EVERY_S = 5.0
PAUSE_S_MAX = 0.25
MAINTENANCE_EVERY_S = 10.0


class NoSuchJob(NotFound):
    type = "NoSuchJobException"


class OtherJobs(Protocol):
    """Jobs for workers when no batch is due."""

    def next_job(self, worker: str, warehouses: Collection[str]) -> dict[str, Any] | None: ...


class JobService:
    """The operations behind the routes for workers."""

    def __init__(
        self,
        catalog: Catalog,
        journal: Journal,
        jobs: Jobs,
        cutter: BatchCutter,
        staging_process: StagingProcess,
        landing_metrics: LandingMetrics,
    ) -> None:
        self._catalog = catalog
        self._journal = journal
        self._jobs = jobs
        self._cutter = cutter
        self._metrics = landing_metrics
        self._staging = JobStaging(
            jobs, cutter, staging_process, landing_metrics, self._delete, journal.dead_letters
        )
        self._failures: dict[tuple[str, TableName], str] = {}  # why the last job of a table failed
        self._seen_s: dict[str, float] = {}
        self.maintenance: OtherJobs | None = None
        self.rebuilds: Rebuilds | None = None
        self._maintained_s = time.monotonic()
        self.wakeup = Wakeup()
        journal.on_append = self._appended

    def _appended(self) -> None:
        """Wake the requests that wait for a job, unless the next due time is already known."""
        if all(due_s <= time.monotonic() for due_s in list(self._cutter.next_due_s.values())):
            self.wakeup.wake()

    def staging_error(self, warehouse: str) -> dict[TableName, str]:
        """The tables whose last staging or job failed, with the reason."""
        found = {**self._failures, **self._staging.staging_error}
        return {table: reason for (where, table), reason in found.items() if where == warehouse}

    def lease(
        self, worker: str, warehouses: Collection[str], about: dict[str, Any], principal: str
    ) -> dict[str, Any] | None:
        """Return the next job for this worker, if there is one: a batch with the tables that it writes to,
        else another job. A worker sets `maintenance` to `also` or `only` to get maintenance jobs.
        """
        self._record_worker(worker, about)
        maintains = about.get("maintenance")
        job = self._rebuild(worker, warehouses, principal) if about.get("rebuilds") else None
        # Batches go first. But a table that always has one would never be maintained.
        is_overdue = time.monotonic() - self._maintained_s > MAINTENANCE_EVERY_S
        if job is None and maintains is not None and is_overdue:
            job = self._maintain(worker, warehouses)
        if job is None and maintains != "only":
            job = self._batch(worker, warehouses, principal)
        if job is None and maintains is not None:
            job = self._maintain(worker, warehouses)
        return job

    def _rebuild(self, worker: str, warehouses: Collection[str], principal: str) -> dict[str, Any] | None:
        job = self.rebuilds.next_job(worker, warehouses) if self.rebuilds is not None else None
        return self._with_states(job, principal) if job is not None else None

    def _maintain(self, worker: str, warehouses: Collection[str]) -> dict[str, Any] | None:
        job = self.maintenance.next_job(worker, warehouses) if self.maintenance is not None else None
        if job is not None:
            self._maintained_s = time.monotonic()
        return job

    def _batch(self, worker: str, warehouses: Collection[str], principal: str) -> dict[str, Any] | None:
        job = self._lease_due(worker, warehouses)
        if job is None:
            # One query for all warehouses: most of them have nothing to land most of the time.
            pending = self._journal.warehouses()
            job = self._staging.next_job(worker, [name for name in pending if name in warehouses])
        if job is None:
            return None
        self.wakeup.wake()  # another request may have waited while this batch was staged
        return self._with_states(job, principal)

    def _with_states(self, job: dict[str, Any], principal: str) -> dict[str, Any] | None:
        try:
            return with_states(self._catalog, principal, job)
        except CatalogError as error:
            self.fail(job["id"], job["epoch"], error.message, retry=isinstance(error, Unavailable))
            return None

    def states(self, job_id: str, epoch: int, principal: str) -> list[dict[str, Any]]:
        """Return the tables of a leased job as they are now, for a worker that must process it again."""
        job = self._held(job_id, epoch).described(epoch)
        return list(with_states(self._catalog, principal, job)["tables"])

    def pause_s(self) -> float:
        """Return how long a request for a job waits before it checks again, unless it is woken."""
        due_s = list(self._cutter.next_due_s.values())
        left_s = min(due_s, default=float("inf")) - time.monotonic()
        return min(max(left_s, 0.0), PAUSE_S_MAX)

    def _record_worker(self, worker: str, about: dict[str, Any]) -> None:
        if time.monotonic() - self._seen_s.get(worker, -SEEN_EVERY_S) >= SEEN_EVERY_S:
            self._seen_s[worker] = time.monotonic()
            self._jobs.seen(worker, about)

    def _lease_due(self, worker: str, warehouses: Collection[str]) -> dict[str, Any] | None:
        for job_id, epoch, state in self._jobs.due():
            if state == "staging":
                self._jobs.forget(job_id, epoch)  # its process has ended; the journal has the changes
                continue
            job = self._jobs.get(job_id)
            if job is None or job.warehouse not in warehouses:
                continue
            if job.kind == REBUILD:
                continue  # only some workers take it
            is_batch = job.kind == "commit"
            if not is_batch and job.kind != CONVERT:
                self._jobs.discard(job)  # a maintenance job whose worker has ended: this frees the table
                continue
            if not self._jobs.take(job_id, epoch, worker, LEASE_S):
                continue
            if is_batch and job.attempts < ATTEMPTS_MAX:
                return job.described(epoch + 1)
            # What makes a worker stop must not hold up other tables: each is cut alone next time.
            stopped = f"its worker stopped before it was done, {job.attempts} times"
            self.fail(job_id, epoch + 1, stopped, retry=False)
        return None

    def heartbeat(self, job_id: str, epoch: int, progress: dict[str, Any]) -> float:
        """Extend a lease. Returns its new duration; LostLease if it is lost."""
        if not self._jobs.extend(job_id, epoch, progress, LEASE_S):
            raise LostLease(job_id, epoch)
        return LEASE_S

    def fail(self, job_id: str, epoch: int, error: str, *, retry: bool = True) -> None:
        """Take a job back. A job that fails repeatedly, or cannot succeed, is cut anew: its tables may have
        changed since it was staged, and the journal still has all changes.
        """
        job = self._held(job_id, epoch)
        self._metrics.failed("write")
        _log.warning("a job failed", extra={"job": job_id, "attempts": job.attempts, "reason": error[:1000]})
        if self.rebuilds is not None and job.kind == REBUILD:
            self.rebuilds.fail(job, error, retry=retry)
            return
        is_final = not retry or job.attempts >= ATTEMPTS_MAX
        if not (self._jobs.discard(job) if is_final else self._jobs.give_back(job, error)):
            raise LostLease(job_id, epoch)
        if is_final:
            self._staging.prestaging.ended(job_id)
            landing = PublishPlan.decode(job.landing)
            ranges = {step.table: (step.from_id, step.to_id) for step in landing.steps}
            described = job.described(epoch)
            if described.get("kind") == CONVERT:
                ranges[*described["namespace"], described["name"]] = (0, 0)
            self._cutter.back_off(BatchRange(job_id, job.warehouse, ranges), rest_s_max=WRITE_PUT_OFF_S_MAX)
            self._failures |= {(job.warehouse, table): error[:1000] for table in ranges}
            self._delete(landing.files)
            self._journal.dead_letters.discard(job_id)

    def publish(
        self, job_id: str, epoch: int, work: CommitSource, principal: str, metrics: dict[str, Any]
    ) -> int | None:
        """Make the batch visible and end its job. Returns the number. A repeat returns the same."""
        job = self.get(job_id)
        if job.state == "done" and job.epoch == epoch:
            self._after(job, PublishPlan.decode(job.landing))  # the server may have crashed before this step
            return job.number
        job = self._held(job_id, epoch)
        landing = PublishPlan.decode(job.landing)
        found = work.snapshots(self._catalog, job.warehouse)
        rows = work.rows(self._catalog, job.warehouse)
        rebuilt = job.kind == REBUILD
        sums = ReportedChecksums.reported(metrics, is_rebuild=rebuilt)
        changed = sums.changes(self._catalog, job.warehouse, landing.steps, rows, found)
        journal_id, head = self._journal.id, self._journal.head(job.warehouse)

        def in_transaction(connection: sa.Connection, number: int) -> None:
            finish(connection, job_id, epoch, number, metrics)
            save_head(connection, job.warehouse, journal_id, head)
            for step in landing.steps:
                full_name = step.table or UNROUTED
                space, name = full_name[:-1], full_name[-1]
                snapshots = (found.get((space, name)), found.get((space, name + CHANGES_SUFFIX)))
                added = (rows.get((space, name)), rows.get((space, name + CHANGES_SUFFIX)))
                note(connection, job.warehouse, step, number, added, metrics, is_rebuild=rebuilt)
                note_checksums(connection, job.warehouse, step.table, number, changed.get(step.table))
                land(
                    connection,
                    job.warehouse,
                    step,
                    number=number,
                    commit_us=landing.commit_us,
                    snapshots=snapshots,
                )
            faults.reach("job.finished")

        # After the publish the journal is trimmed, so the new files must be on disk first.
        self._catalog.files.sync(self._catalog.warehouse(job.warehouse).root)
        try:
            number = work.publish(self._catalog, job.warehouse, principal, in_transaction)
        except Conflict:
            # Two requests for the same publish may run at once, if the response to the first was lost.
            job = self.get(job_id)
            if job.state != "done" or job.epoch != epoch:
                raise
            number = job.number
        faults.reach("job.published")
        self._staging.prestaging.ended(job_id)
        self._metrics.published(landing.steps, metrics)
        if landing.steps and not rebuilt:
            self._cutter.record_duration(time.time_ns() // 1_000_000 - job.created_ms)
        self._after(job, landing)
        return number

    def _after(self, job: Job, landing: PublishPlan) -> None:
        """Trim the journal and delete the staged files. A crash may skip this: housekeeping repeats it."""
        self.wakeup.wake()  # the tables are free for their next batch
        for step in landing.steps:
            self._failures.pop((job.warehouse, step.table), None)
        self._cutter.landed(job.warehouse, (step.table for step in landing.steps))
        try:
            landed = {step.table or UNROUTED: step.to_id for step in landing.steps}
            self._journal.open_letters(job.id, job.warehouse, landed)
            self._journal.trim(job.warehouse, {step.table: step.to_id for step in landing.steps})
        except CatalogError as error:
            _log.warning("the journal was not trimmed", extra={"job": job.id, "reason": error.message})
        self._delete(landing.files)

    def _delete(self, files: Sequence[str]) -> None:
        try:
            self._catalog.files.delete(files)
        except CatalogError as error:
            _log.warning("staged files were left behind", extra={"reason": error.message, "files": files[:3]})

    def get(self, job_id: str) -> Job:
        job = self._jobs.get(job_id)
        if job is None:
            raise NoSuchJob(f"Job does not exist: {job_id}")
        return job

    def _held(self, job_id: str, epoch: int) -> Job:
        job = self.get(job_id)
        if job.state != "leased" or job.epoch != epoch:
            raise LostLease(job_id, epoch)
        return job


# -- what a worker publishes

TableRef = tuple[tuple[str, ...], str]  # namespace and name of a table
Snapshots = Mapping[TableRef, int | None]


class CommitSource(Protocol):
    def snapshots(self, catalog: Catalog, warehouse: str) -> Snapshots:
        """The current snapshot of each table after the publish."""
        ...

    def rows(self, catalog: Catalog, warehouse: str) -> Mapping[TableRef, Snapshot]:
        """The rows of each table to which the publish adds a snapshot."""
        ...

    def publish(
        self, catalog: Catalog, warehouse: str, principal: str, in_transaction: InTransaction
    ) -> int | None:
        """Publish and run `in_transaction`, in one SQL transaction. Returns the number."""
        ...
