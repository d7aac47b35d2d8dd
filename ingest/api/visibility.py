"""Wait until changes are visible. One poll of a warehouse serves all requests that wait for it.

A poll that fails is logged and repeated. Each request has its own timeout.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass

from catalog.errors import CatalogError
from catalog.shutdown import stopping
from ingest.change import TableName
from ingest.landing.status import LandingStatus

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Waiter:
    until: Mapping[TableName, int]
    done: asyncio.Future[bool]


class VisibilityWaiter:
    def __init__(self, landing: LandingStatus, threads: Executor, poll_ms: int) -> None:
        self._landing = landing
        self._threads = threads
        self._poll_s = poll_ms / 1000
        self._waiters: dict[str, set[_Waiter]] = {}
        self._polls: dict[str, asyncio.Task[None]] = {}

    async def wait(self, warehouse: str, until: Mapping[TableName, int], timeout_s: float) -> bool:
        """Wait until each table has landed its id. Returns False if that did not happen in time, or the
        server stops.
        """
        if not until:
            return True
        waiter = _Waiter(until, asyncio.get_running_loop().create_future())
        self._waiters.setdefault(warehouse, set()).add(waiter)
        if warehouse not in self._polls:
            self._polls[warehouse] = asyncio.create_task(self._poll_until_done(warehouse))
        try:
            async with asyncio.timeout(timeout_s):
                return await waiter.done
        except TimeoutError:
            return False
        finally:
            self._waiters[warehouse].discard(waiter)

    async def _poll_until_done(self, warehouse: str) -> None:
        waiters = self._waiters[warehouse]
        try:
            while waiters:
                await self._poll(warehouse, waiters)
                if stopping.is_set():
                    _resolve(waiters, set(waiters), is_visible=False)
                if waiters:
                    await asyncio.sleep(self._poll_s)
        finally:
            del self._polls[warehouse]

    async def _poll(self, warehouse: str, waiters: set[_Waiter]) -> None:
        tables = {table for waiter in waiters for table in waiter.until}
        run = asyncio.get_running_loop().run_in_executor
        try:
            landed = await run(self._threads, self._landing.landed, warehouse, tables)
        except CatalogError as error:
            log.warning(
                "cannot read what has landed", extra={"warehouse": warehouse, "reason": error.message}
            )
            return
        except Exception:
            log.exception("cannot read what has landed", extra={"warehouse": warehouse})
            return
        arrived = {
            waiter
            for waiter in waiters
            if all(landed.get(table, 0) >= journal_id for table, journal_id in waiter.until.items())
        }
        _resolve(waiters, arrived, is_visible=True)


def _resolve(waiters: set[_Waiter], some: set[_Waiter], *, is_visible: bool) -> None:
    waiters -= some
    for waiter in some:
        if not waiter.done.done():
            waiter.done.set_result(is_visible)
