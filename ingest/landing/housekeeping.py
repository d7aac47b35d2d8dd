"""Periodic work: expire identities, trim after a crash, delete abandoned staged files.

A server that is killed while it stages leaves files that no job has; they are deleted after a day.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection

from catalog.errors import CatalogError
from catalog.services.catalog import Catalog
from ingest.journal.journal import Journal
from ingest.landing.history_view import HistoryViews
from ingest.landing.resync import ResyncService
from ingest.sources.store import SourceStore
from ingest.staging.context import UNROUTED
from ingest.store.jobs import Jobs, staged_folder
from ingest.store.tables import LandingTables

JOBS_MAX = 1000


def unfinished_work(
    warehouses: Collection[str], journal: Journal, tables: LandingTables, jobs: Jobs
) -> str | None:
    """Describe the acknowledged changes that are not visible; None if there are none."""
    events, waiting_tables, unfinished = 0, 0, 0
    for warehouse in warehouses:
        landed = tables.all(warehouse)
        waiting = [
            row
            for row in journal.pending(warehouse)
            if row.table not in landed or row.last_id > landed[row.table].landed_id
        ]
        events += sum(row.events for row in waiting)
        waiting_tables += len(waiting)
        unfinished += sum(job["state"] != "done" for job in jobs.newest(warehouse, JOBS_MAX))
    if not waiting_tables and not unfinished:
        return None
    return (
        f"recovered: {events:,} acknowledged changes of {waiting_tables} tables wait to land, "
        f"{unfinished} unfinished batches are continued"
    )


# -- the thread

EVERY_S = 5.0
STAGED_EVERY_S = 3600.0
STAGED_FOR_MS = 24 * 3600 * 1000
EXPIRES_FOR_S = 1800.0  # after the last append; longer than the default lifetime of identities

_log = logging.getLogger(__name__)


class Housekeeping:
    """A thread of the server. Several servers may run it: every step can be repeated."""

    def __init__(
        self,
        catalog: Catalog,
        journal: Journal,
        tables: LandingTables,
        jobs: Jobs,
        sources: SourceStore,
        resync: ResyncService,
        history_views: HistoryViews,
    ) -> None:
        self._history_views = history_views
        self._sources = sources
        self._resync = resync
        self._catalog = catalog
        self._journal = journal
        self._tables = tables
        self._jobs = jobs
        self._looked_s = 0.0
        self._heads: dict[str, int] = {}
        self._moved_s = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="housekeeping", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(5)

    def _run(self) -> None:
        self._log_recovered()
        while not self._stopping.wait(EVERY_S):
            try:
                self.once()
            except CatalogError as error:
                _log.warning("housekeeping cannot reach the database", extra={"reason": error.message})
            except Exception:  # noqa: BLE001 - the thread must outlive a mistake in one round
                _log.exception("a round of housekeeping failed")

    def _log_recovered(self) -> None:
        try:
            names = [warehouse.name for warehouse in self._catalog.warehouses.all()]
            found = unfinished_work(names, self._journal, self._tables, self._jobs)
        except CatalogError as error:
            _log.warning("unfinished work could not be counted", extra={"reason": error.message})
            return
        if found is not None:
            _log.info(found)

    def once(self) -> None:
        """Run one round."""
        names = [warehouse.name for warehouse in self._catalog.warehouses.all()]
        heads = {name: self._journal.head(name) for name in names}
        if heads != self._heads:
            self._heads, self._moved_s = heads, time.monotonic()
        # A journal without new appends soon has nothing left to expire, and is not read again.
        if any(heads.values()) and time.monotonic() - self._moved_s < EXPIRES_FOR_S:
            self._journal.expire(time.time_ns() // 1_000_000)
        self._sweep_letters()
        self._forget_dropped(names)
        now_ms = time.time_ns() // 1_000_000
        for name in names:
            self._trim(name)
            self._resync.expire(name, now_ms)
            self._history_views.keep_all(name, self._tables.all(name))
            self._catalog.transactions.sweep(name, self._catalog.now_ms())
        if not self._looked_s or time.monotonic() - self._looked_s > STAGED_EVERY_S:
            self._looked_s = time.monotonic()
            self._resync.forget_old(now_ms)
            self._sources.forget_others(lambda: {found.name for found in self._catalog.warehouses.all()})
            for name in names:
                self.delete_abandoned(name, time.time_ns() // 1_000_000 - STAGED_FOR_MS)

    def delete_abandoned(self, warehouse: str, before_ms: int) -> None:
        """Delete staged files from before that time which no unfinished job has."""
        folder = staged_folder(self._catalog.warehouse(warehouse).root)
        by_job: dict[str, list[str]] = {}
        for location in self._catalog.files.unchanged_since(folder, before_ms):
            by_job.setdefault(location.removeprefix(f"{folder}/").partition("/")[0], []).append(location)
        for job_id, files in by_job.items():
            if self._jobs.state(job_id) in (None, "done"):
                self._catalog.files.delete(files)
                self._catalog.files.remove_empty_directory(f"{folder}/{job_id}")

    def _forget_dropped(self, names: Collection[str]) -> None:
        """Delete changes of a dropped warehouse: they can never land, and would fill the journal."""
        for name in self._journal.warehouses():
            if name in names or self._exists(name):
                continue
            self._tables.forget_warehouse(name)
            events = self._journal.forget_warehouse(name, lambda name=name: not self._exists(name))  # type: ignore[misc]
            if events:
                _log.warning(
                    "changes of a dropped warehouse were deleted", extra={"warehouse": name, "events": events}
                )

    def _exists(self, warehouse: str) -> bool:
        return any(found.name == warehouse for found in self._catalog.warehouses.all())

    def _sweep_letters(self) -> None:
        """Open or delete the dead letters of a job that ended during a crash of the server."""
        letters = self._journal.dead_letters
        for job_id, warehouse, table, journal_id in letters.staged():
            state = self._jobs.state(job_id)
            if state is None:  # the row of a published job is deleted after a day
                key = () if table == UNROUTED else table
                state = "done" if self._tables.one(warehouse, key).landed_id >= journal_id else "discarded"
            if state == "done":
                self._journal.open_letters(job_id, warehouse, {})
            elif state == "discarded":
                letters.discard(job_id)

    def _trim(self, warehouse: str) -> None:
        """Trim entries that have landed: a crash between a publish and its trim leaves them."""
        landed = self._tables.all(warehouse)
        left = {
            row.table: landed[row.table].landed_id
            for row in self._journal.pending(warehouse)
            if row.table in landed and row.first_id <= landed[row.table].landed_id
        }
        if left:
            self._journal.trim(warehouse, left)
