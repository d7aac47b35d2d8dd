"""Purges, in the background: a table with many files takes longer to delete than a request may take.

The drop commits first and puts the table on a list in the database (`catalog.store.dropped`). Threads of this
process take it from there; whoever asked waits a moment, so that the files of a small table are gone when the
answer comes. What a stop, a crash or a storage that does not answer leaves undone is found by a look at the
list, at the start of every process and once a minute, and begun again: a purge can be repeated.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace

import orjson

from catalog.errors import CatalogError
from catalog.storage.base import Files
from catalog.store.database import Database
from catalog.store.dropped import HeldPurge, PurgeStore
from catalog.store.warehouses import WarehouseStore

AT_ONCE_MAX = 2
ANSWER_AFTER_S = 2.0
HOLD_S = 15.0  # longer than any one request to a storage takes
LOOK_EVERY_S = 60.0
AGAIN_AFTER_S = 600.0  # after a failure
LOOK_ROWS_MAX = 100

log = logging.getLogger(__name__)


class Stopped(Exception):
    """This process is about to end, or another one goes on with the purge."""


class PurgeWorker:
    """The purges of one process."""

    def __init__(self, database: Database, files: Files) -> None:
        self._files = files
        self._store = PurgeStore(database)
        self._warehouses = WarehouseStore(database)
        self._threads = ThreadPoolExecutor(AT_ONCE_MAX, thread_name_prefix="purge")
        self._stopped = threading.Event()
        self._looking: threading.Thread | None = None

    def start(self) -> None:
        """Look for what others left undone, now and from time to time. Not needed for `submit`."""
        self._looking = threading.Thread(target=self._look_often, name="purge-look", daemon=True)
        self._looking.start()

    def stop(self) -> None:
        """Let go of everything between two steps; the next process goes on."""
        self._stopped.set()
        self._threads.shutdown(wait=True)  # those that wait for a thread end at once when they get one
        if self._looking is not None:
            self._looking.join()

    def submit(self, warehouse: str, uuids: Sequence[str]) -> None:
        """Delete the files of tables that are on the list; returns when that is done, or takes long."""
        if uuids and not self._stopped.is_set():
            wait([self._start(warehouse, uuid) for uuid in uuids], timeout=ANSWER_AFTER_S)

    def look(self) -> float:
        """Begin with what is on the list and nobody has; answers when to look again, in seconds."""
        now_ms = _now_ms()
        wanted = self._store.wanted(LOOK_ROWS_MAX)
        wait([self._start(w.warehouse, w.uuid) for w in wanted if w.held_until_ms <= now_ms])
        held_ms = [w.held_until_ms - now_ms for w in wanted if w.held_until_ms > now_ms]
        return min([LOOK_EVERY_S, *(ms / 1000 for ms in held_ms)])

    def _start(self, warehouse: str, uuid: str) -> Future[None]:
        return self._threads.submit(self._carry_out, warehouse, uuid)

    def _look_often(self) -> None:
        pause_s = 0.0
        while not self._stopped.wait(pause_s):
            try:
                pause_s = self.look()
            except (CatalogError, RuntimeError) as error:  # RuntimeError: the threads have just been stopped
                pause_s = LOOK_EVERY_S
                log.warning("could not look for tables to purge", extra={"reason": str(error)})

    def _carry_out(self, warehouse: str, uuid: str) -> None:
        """Never raises: nobody may be there to hear it."""
        try:
            if self._stopped.is_set():
                return
            now_ms = _now_ms()
            held = self._store.take(warehouse, uuid, now_ms, now_ms + int(HOLD_S * 1000))
            if held is not None:
                self._purge(PurgeLease(self._store, held, self._stopped))
        except Stopped:
            log.info("a purge will be gone on with later", extra={"warehouse": warehouse, "uuid": uuid})
        except Exception:
            log.exception(
                "could not purge all files of a dropped table; it will be tried again",
                extra={"warehouse": warehouse, "uuid": uuid},
            )

    def _purge(self, hold: PurgeLease) -> None:
        from catalog.storage.purge import purge  # brings an Avro reader that a server may never need

        held = hold.held
        root = self._warehouses.require(held.warehouse).root
        try:
            metadata = orjson.loads(held.document)
            report = purge(self._files, metadata, held.metadata_location, root, check=hold.check)
        except Stopped:
            hold.release()
            raise
        except Exception:
            hold.extend(AGAIN_AFTER_S)
            raise
        self._store.done(held)
        log.info(
            "purged a table",
            extra={"warehouse": held.warehouse, "table": held.name, "report": str(report)},
        )


class PurgeLease:
    """Keeps a purge for this process while it makes progress."""

    def __init__(self, store: PurgeStore, held: HeldPurge, stopped: threading.Event) -> None:
        self.held = held
        self._store = store
        self._stopped = stopped
        self._held_s = time.monotonic()

    def check(self) -> None:
        """Called before every step; Stopped if there should be none."""
        if self._stopped.is_set():
            raise Stopped
        if time.monotonic() - self._held_s > HOLD_S / 3:
            self.extend(HOLD_S)

    def extend(self, time_s: float) -> None:
        until_ms = _now_ms() + int(time_s * 1000)
        if not self._store.hold(self.held, until_ms):
            raise Stopped  # it took too long between two steps, or the table has a name again
        self.held = replace(self.held, until_ms=until_ms)
        self._held_s = time.monotonic()

    def release(self) -> None:
        self._store.hold(self.held, 0)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
