"""From what is due to a leased job: a claim on the tables, their files, the description for the worker.

One cut at a time in this process: two lanes of one worker ask at the same moment.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Protocol

import orjson

from catalog import faults
from catalog.errors import CatalogError
from ingest.batches.cut import CannotStage, Cut, Expected, StagedBatch
from ingest.change import TableName
from ingest.jobs.ahead import Ahead, Waiting
from ingest.jobs.landings import Landing
from ingest.jobs.lanes import STAGING_LEASE_S, Lanes
from ingest.jobs.measures import Measures
from ingest.journal.dead_letters import DeadLetters
from ingest.landing.jobs import Jobs

LEASE_S = 30.0

_log = logging.getLogger(__name__)


class Stager(Protocol):
    """Makes files of a cut."""

    def stage(self, cut: Cut) -> StagedBatch: ...

    def stage_ahead(self, cut: Cut, expected: Expected) -> StagedBatch | None:
        """None if it is better to wait: the table would change, or something has to be put aside."""
        ...

    def still_holds(self, cut: Cut, batch: StagedBatch) -> bool:
        """Whether a batch that was staged ahead is what `stage` would make of this cut now."""
        ...


class Staging:
    def __init__(
        self,
        jobs: Jobs,
        lanes: Lanes,
        stager: Stager,
        measures: Measures,
        delete: Callable[[Sequence[str]], None],
        dead_letters: DeadLetters,
    ) -> None:
        self._jobs = jobs
        self._lanes = lanes
        self._stager = stager
        self._measures = measures
        self._delete = delete
        self._dead_letters = dead_letters
        self._busy = threading.Lock()
        self.ahead = Ahead(jobs)
        # Why the last staging of a table failed, by warehouse and table, until one succeeds.
        self.trouble: dict[tuple[str, TableName], str] = {}

    def next_job(self, worker: str, warehouses: Collection[str]) -> dict[str, Any] | None:
        """The next batch that is due, as a job that this worker holds."""
        if not self._busy.acquire(blocking=False):
            return None
        try:
            job = self._continued(worker, warehouses)
            if job is not None:
                return job
            for warehouse in warehouses:
                cut = self._lanes.cut(warehouse, worker)
                if cut is not None:
                    return self._begin(cut)
            self._look_ahead(warehouses)
        finally:
            self._busy.release()
        return None

    def _begin(self, cut: Cut) -> dict[str, Any] | None:
        try:
            with self._kept(cut):
                batch = self._stager.stage(cut)
        except CatalogError as error:
            only = error.table if isinstance(error, CannotStage) else None
            self.trouble |= {
                (cut.warehouse, table): error.message for table in (cut.spans if only is None else (only,))
            }
            self._measures.failed("stage")
            _log.warning("a batch cannot be staged", extra={"job": cut.job_id, "reason": error.message})
            self._lanes.put_off(cut, only)
            self._jobs.forget(cut.job_id, 1)
            return None
        except BaseException:
            self._lanes.put_off(cut)
            self._jobs.forget(cut.job_id, 1)
            raise
        for table in cut.spans:
            self.trouble.pop((cut.warehouse, table), None)
        return self._leased(cut, batch)

    def _leased(self, cut: Cut, batch: StagedBatch) -> dict[str, Any] | None:
        faults.reach("job.staged")
        description = orjson.dumps(
            {
                "id": cut.job_id,
                "kind": "commit",
                "warehouse": cut.warehouse,
                "batch-id": cut.job_id,
                "commit-timestamp-us": batch.commit_us,
                "lease-s": LEASE_S,
                "tables": batch.tables,
            }
        )
        landing = Landing(batch.commit_us, batch.files, batch.steps).encode()
        if not self._jobs.staged(cut.job_id, 1, description, landing, LEASE_S):
            self._delete(batch.files)
            self._dead_letters.discard(cut.job_id)
            return None
        self.ahead.begun(cut, batch)
        answer: dict[str, Any] = orjson.loads(description)
        return answer | {"epoch": 1}

    # -- a batch that was staged while the one before it was landed

    def _continued(self, worker: str, warehouses: Collection[str]) -> dict[str, Any] | None:
        """The batch that waited for a job, now that this is published."""
        due, void = self.ahead.take(warehouses)
        if void is not None:
            self._delete(void.batch.files)
        if due is None:
            return None
        cut = due.cut
        if not self._jobs.begin(cut.job_id, cut.warehouse, worker, list(cut.spans), STAGING_LEASE_S):
            self._delete(due.batch.files)  # another server was quicker
            return None
        if self._holds(due):
            return self._leased(cut, due.batch)
        self._jobs.forget(cut.job_id, 1)
        self._delete(due.batch.files)
        return None

    def _holds(self, due: Waiting) -> bool:
        try:
            return self._stager.still_holds(due.cut, due.batch)
        except CatalogError as error:  # the staging process died, or a database: it is cut again
            _log.warning("what was staged ahead is lost", extra={"reason": error.message})
            return False
        except BaseException:
            self._jobs.forget(due.cut.job_id, 1)
            raise

    def _look_ahead(self, warehouses: Collection[str]) -> None:
        """Nothing else is due: stage what waits behind a job that is being landed, if it is much."""
        if self.ahead.waiting is not None:
            return
        for running in self.ahead.running(warehouses):
            cut = self._lanes.cut_behind(running.warehouse, {t: s.to_id for t, s in running.steps.items()})
            if cut is None:
                continue
            try:
                batch = self._stager.stage_ahead(cut, running.expected(cut.spans))
            except CatalogError as error:
                # Its turn will come, and then it fails or succeeds by itself.
                _log.info("not staged ahead", extra={"reason": error.message})
                batch = None
            if batch is None:
                self.ahead.ended(running.job_id)  # not again behind this one
            else:
                self.ahead.waiting = Waiting(cut, batch, running)
            return

    @contextlib.contextmanager
    def _kept(self, cut: Cut) -> Iterator[None]:
        """The claim on the tables lasts as long as their files take."""
        over = threading.Event()

        def keep() -> None:
            while not over.wait(STAGING_LEASE_S / 4):
                try:
                    self._jobs.keep_staging(cut.job_id, 1, STAGING_LEASE_S)
                except CatalogError as error:
                    _log.warning(
                        "a claim was not renewed", extra={"job": cut.job_id, "reason": error.message}
                    )

        keeper = threading.Thread(target=keep, name="staging-lease", daemon=True)
        keeper.start()
        try:
            yield
        finally:
            over.set()
            keeper.join()
