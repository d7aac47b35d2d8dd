"""What all parts of the door share, one for each server process: the journal behind it, the landing side,
who may enter, the threads that work, the numbers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from catalog.api.stopping import stopping
from catalog.errors import CatalogError, CommitStateUnknown, Unavailable
from catalog.identity.ports import Identity
from catalog.service.catalog import Catalog
from ingest.door.access import Access
from ingest.door.intake import Intake
from ingest.door.measures import Measures
from ingest.door.ports import Landing, Metrics
from ingest.door.settings import DoorSettings
from ingest.door.sockets.limits import Connections
from ingest.door.sources import Sources
from ingest.door.waiting import Arrivals
from ingest.journal.errors import JournalFull
from ingest.journal.journal import Journal

T = TypeVar("T")


class Busy(Unavailable):
    """Nothing of the request was stored."""

    status = 429
    type = "TooManyRequestsException"


class Room:
    def __init__(
        self,
        journal: Journal,
        landing: Landing,
        identity: Identity,
        catalog: Catalog,
        settings: DoorSettings,
        metrics: Metrics,
    ) -> None:
        self.journal = journal
        self.landing = landing
        self.catalog = catalog
        self.settings = settings
        self.access = Access(identity, catalog, settings)
        self.intake = Intake(journal)
        self.measures = Measures(metrics)
        # Apart, so that changes are taken while many questions wait for a database that does not answer.
        self.takers = ThreadPoolExecutor(settings.taking_threads_max, thread_name_prefix="take")
        self.askers = ThreadPoolExecutor(settings.asking_threads_max, thread_name_prefix="ask")
        self.arrivals = Arrivals(landing, self.askers, settings.look_every_ms)
        self.sources = Sources(settings.sources_remembered_max)
        self.connections = Connections(settings)
        # SQLite answers in less time than the way to a thread and back; a database elsewhere may hang.
        self._is_quick = catalog.database.is_sqlite
        self._stopped = False
        self.failures = 0  # batches in a row that the journal could not store
        self._in_hand_bytes = 0  # of bodies that wait for a thread, or are being read

    @property
    def is_stopping(self) -> bool:
        """Whether to begin nothing new; requests that are here already are finished."""
        return self._stopped or stopping.is_set()

    def stop(self) -> None:
        self._stopped = True

    def require_running(self) -> None:
        if self._stopped:
            raise Unavailable("the server is stopping: send the request again in a moment", retry_after_s=1)

    async def take(self, size: int, work: Callable[[], T], *, patient: bool = False) -> T:
        """Do what reads a body of this size: here if it is quick, else in a thread.

        If too much waits to be read already, it waits too (`patient`) or is refused as Busy: parsed, a body
        takes many times its size.
        """
        if size <= self.settings.inline_bytes_max and self._is_quick:
            return work()
        while self._in_hand_bytes and self._in_hand_bytes + size > self.settings.in_hand_bytes_max:
            if not patient:
                raise Busy("more is being read than the server has room for: send the request again later")
            await asyncio.sleep(BUSY_LOOK_S)
        self._in_hand_bytes += size
        try:
            return await asyncio.get_running_loop().run_in_executor(self.takers, work)
        finally:
            self._in_hand_bytes -= size

    async def ask(self, work: Callable[[], T]) -> T:
        """Do what asks a database, in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self.askers, work)

    def note_failure(self, error: CatalogError) -> None:
        """Count what says that the database is in trouble; a full journal does not."""
        in_trouble = isinstance(error, Unavailable | CommitStateUnknown)
        if in_trouble and not isinstance(error, JournalFull | Busy):
            self.failures += 1

    def close(self) -> None:
        self.takers.shutdown(wait=True)
        self.askers.shutdown(wait=True)

    @property
    def circuit(self) -> str:
        """As clients know it: `open` while the database of the journal does not take anything."""
        return "open" if self.failures >= FAILURES_UNTIL_OPEN else "closed"


FAILURES_UNTIL_OPEN = 5
BUSY_LOOK_S = 0.01


def now_ms() -> int:
    return time.time_ns() // 1_000_000
