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
from catalog.store.dropped import LeasedPurge, PurgeStore
from catalog.store.warehouses import WarehouseStore

THREADS_MAX = 2
RESPONSE_WAIT_S = 2.0
LEASE_S = 15.0  # longer than any single request to the storage
POLL_INTERVAL_S = 60.0
RETRY_AFTER_S = 600.0  # after a failure
POLL_ROWS_MAX = 100

log = logging.getLogger(__name__)


class Stopped(Exception):
    """This process is stopping, or another process has the lease."""


class PurgeWorker:
    """Runs purges in the threads of one process."""

    def __init__(self, database: Database, files: Files) -> None:
        self._files = files
        self._store = PurgeStore(database)
        self._warehouses = WarehouseStore(database)
        self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="purge")
        self._stopped = threading.Event()
        self._poller: threading.Thread | None = None

    def start(self) -> None:
        """Poll the queue now and regularly. `submit` works without it."""
        self._poller = threading.Thread(target=self._poll_regularly, name="purge-poll", daemon=True)
        self._poller.start()

    def stop(self) -> None:
        """Release all leases. Another process continues the purges."""
        self._stopped.set()
        self._threads.shutdown(wait=True)  # purges that are still waiting for a thread return at once
        if self._poller is not None:
            self._poller.join()

    def submit(self, warehouse: str, uuids: Sequence[str]) -> None:
        """Purge tables that are in the queue. Returns when they are purged, or after a short wait."""
        if uuids and not self._stopped.is_set():
            wait([self._start(warehouse, uuid) for uuid in uuids], timeout=RESPONSE_WAIT_S)

    def poll(self) -> float:
        """Start purges that no process has leased. Returns the seconds until the next poll."""
        now_ms = _now_ms()
        queued = self._store.queued(POLL_ROWS_MAX)
        wait(
            [self._start(purge.warehouse, purge.uuid) for purge in queued if purge.leased_until_ms <= now_ms]
        )
        leases_ms = [purge.leased_until_ms - now_ms for purge in queued if purge.leased_until_ms > now_ms]
        return min([POLL_INTERVAL_S, *(ms / 1000 for ms in leases_ms)])

    def _start(self, warehouse: str, uuid: str) -> Future[None]:
        return self._threads.submit(self._run, warehouse, uuid)

    def _poll_regularly(self) -> None:
        pause_s = 0.0
        while not self._stopped.wait(pause_s):
            try:
                pause_s = self.poll()
            except (CatalogError, RuntimeError) as error:  # RuntimeError: the thread pool has been shut down
                pause_s = POLL_INTERVAL_S
                log.warning("could not poll the purge queue", extra={"reason": str(error)})

    def _run(self, warehouse: str, uuid: str) -> None:
        """Purge one table. Errors are logged: the request may have been answered already."""
        try:
            if self._stopped.is_set():
                return
            now_ms = _now_ms()
            leased = self._store.lease(warehouse, uuid, now_ms, now_ms + int(LEASE_S * 1000))
            if leased is not None:
                self._purge(PurgeLease(self._store, leased, self._stopped))
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

    def _purge(self, lease: PurgeLease) -> None:
        from catalog.storage.purge import purge  # imports an Avro reader that few servers need

        leased = lease.leased
        root = self._warehouses.require(leased.warehouse).root
        try:
            metadata = orjson.loads(leased.document)
            report = purge(self._files, metadata, leased.metadata_location, root, check=lease.check)
        except Stopped:
            lease.release()
            raise
        except Exception:
            lease.extend(RETRY_AFTER_S)
            raise
        self._store.done(leased)
        log.info(
            "purged a table",
            extra={"warehouse": leased.warehouse, "table": leased.name, "report": str(report)},
        )


class PurgeLease:
    """The lease of one purge, extended while the purge makes progress."""

    def __init__(self, store: PurgeStore, leased: LeasedPurge, stopped: threading.Event) -> None:
        self.leased = leased
        self._store = store
        self._stopped = stopped
        self._renewed_s = time.monotonic()

    def check(self) -> None:
        """Called before every step. Raises Stopped if the purge must not continue."""
        if self._stopped.is_set():
            raise Stopped
        if time.monotonic() - self._renewed_s > LEASE_S / 3:
            self.extend(LEASE_S)

    def extend(self, time_s: float) -> None:
        until_ms = _now_ms() + int(time_s * 1000)
        if not self._store.renew(self.leased, until_ms):
            raise Stopped  # the lease expired between two steps, or the table was restored
        self.leased = replace(self.leased, until_ms=until_ms)
        self._renewed_s = time.monotonic()

    def release(self) -> None:
        self._store.renew(self.leased, 0)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
