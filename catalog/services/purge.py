"""Purges in the background, because deleting the files of a large table takes longer than a request may take.

The drop commits first and adds the table to the purge queue in the database (`catalog.store.dropped`).
Threads of this process work on the queue. The request waits for up to two seconds, so that the files of a
small table are deleted when the response is sent. Every process polls the queue when it starts and once a
minute, and continues purges that a stop, a crash or a storage error interrupted. A purge can be repeated
safely.
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
HOLD_S = 15.0  # longer than any single request to the storage
LOOK_EVERY_S = 60.0
AGAIN_AFTER_S = 600.0  # after a failure
LOOK_ROWS_MAX = 100

log = logging.getLogger(__name__)


class Stopped(Exception):
    """This process is stopping, or another process has the lease."""


class PurgeWorker:
    """Runs purges in the threads of one process."""

    def __init__(self, database: Database, files: Files) -> None:
        self._files = files
        self._store = PurgeStore(database)
        self._warehouses = WarehouseStore(database)
        self._threads = ThreadPoolExecutor(AT_ONCE_MAX, thread_name_prefix="purge")
        self._stopped = threading.Event()
        self._looking: threading.Thread | None = None

    def start(self) -> None:
        """Poll the queue now and regularly. `submit` works without it."""
        self._looking = threading.Thread(target=self._look_often, name="purge-look", daemon=True)
        self._looking.start()

    def stop(self) -> None:
        """Release all leases. Another process continues the purges."""
        self._stopped.set()
        self._threads.shutdown(wait=True)  # purges that are still waiting for a thread return at once
        if self._looking is not None:
            self._looking.join()

    def submit(self, warehouse: str, uuids: Sequence[str]) -> None:
        """Purge tables that are in the queue. Returns when they are purged, or after a short wait."""
        if uuids and not self._stopped.is_set():
            wait([self._start(warehouse, uuid) for uuid in uuids], timeout=ANSWER_AFTER_S)

    def look(self) -> float:
        """Start purges that no process has leased. Returns the seconds until the next poll."""
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
            except (CatalogError, RuntimeError) as error:  # RuntimeError: the thread pool has been shut down
                pause_s = LOOK_EVERY_S
                log.warning("could not poll the purge queue", extra={"reason": str(error)})

    def _carry_out(self, warehouse: str, uuid: str) -> None:
        """Purge one table. Errors are logged: the request may have been answered already."""
        try:
            if self._stopped.is_set():
                return
            now_ms = _now_ms()
            held = self._store.take(warehouse, uuid, now_ms, now_ms + int(HOLD_S * 1000))
            if held is not None:
                self._purge(PurgeLease(self._store, held, self._stopped))
        except Stopped:
            log.info(
                "a purge was interrupted and will continue later",
                extra={"warehouse": warehouse, "uuid": uuid},
            )
        except Exception:
            log.exception(
                "could not purge all files of a dropped table; it will be tried again",
                extra={"warehouse": warehouse, "uuid": uuid},
            )

    def _purge(self, hold: PurgeLease) -> None:
        from catalog.storage.purge import purge  # imports an Avro reader that few servers need

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
    """The lease of one purge, extended while the purge makes progress."""

    def __init__(self, store: PurgeStore, held: HeldPurge, stopped: threading.Event) -> None:
        self.held = held
        self._store = store
        self._stopped = stopped
        self._held_s = time.monotonic()

    def check(self) -> None:
        """Called before every step. Raises Stopped if the purge must not continue."""
        if self._stopped.is_set():
            raise Stopped
        if time.monotonic() - self._held_s > HOLD_S / 3:
            self.extend(HOLD_S)

    def extend(self, time_s: float) -> None:
        until_ms = _now_ms() + int(time_s * 1000)
        if not self._store.hold(self.held, until_ms):
            raise Stopped  # the lease expired between two steps, or the table was restored
        self.held = replace(self.held, until_ms=until_ms)
        self._held_s = time.monotonic()

    def release(self) -> None:
        self._store.hold(self.held, 0)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
