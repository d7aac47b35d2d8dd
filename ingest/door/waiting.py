"""Waiting until changes are visible: any number of requests, one look for all of them.

While somebody waits for a warehouse, its landing side is asked every few milliseconds, once for all tables
that anybody waits for. A look that fails is logged and repeated: those who wait have their own time limits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass

from catalog.api.stopping import stopping
from catalog.errors import CatalogError
from ingest.change import TableName
from ingest.door.ports import Landing

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Waiter:
    until: Mapping[TableName, int]
    done: asyncio.Future[bool]


class Arrivals:
    def __init__(self, landing: Landing, threads: Executor, look_every_ms: int) -> None:
        self._landing = landing
        self._threads = threads
        self._look_every_s = look_every_ms / 1000
        self._waiters: dict[str, set[_Waiter]] = {}
        self._watches: dict[str, asyncio.Task[None]] = {}

    async def wait(self, warehouse: str, until: Mapping[TableName, int], timeout_s: float) -> bool:
        """Until each table has landed its id; False if that did not happen in time, or the server stops."""
        if not until:
            return True
        waiter = _Waiter(until, asyncio.get_running_loop().create_future())
        self._waiters.setdefault(warehouse, set()).add(waiter)
        if warehouse not in self._watches:
            self._watches[warehouse] = asyncio.create_task(self._watch(warehouse))
        try:
            async with asyncio.timeout(timeout_s):
                return await waiter.done
        except TimeoutError:
            return False
        finally:
            self._waiters[warehouse].discard(waiter)

    async def _watch(self, warehouse: str) -> None:
        waiters = self._waiters[warehouse]
        try:
            while waiters:
                await self._look(warehouse, waiters)
                if stopping.is_set():
                    _answer(waiters, set(waiters), is_visible=False)
                if waiters:
                    await asyncio.sleep(self._look_every_s)
        finally:
            del self._watches[warehouse]

    async def _look(self, warehouse: str, waiters: set[_Waiter]) -> None:
        tables = {table for waiter in waiters for table in waiter.until}
        ask = asyncio.get_running_loop().run_in_executor
        try:
            landed = await ask(self._threads, self._landing.landed, warehouse, tables)
        except CatalogError as error:
            log.warning("cannot see what has landed", extra={"warehouse": warehouse, "reason": error.message})
            return
        except Exception:
            log.exception("cannot see what has landed", extra={"warehouse": warehouse})
            return
        arrived = {
            waiter
            for waiter in waiters
            if all(landed.get(table, 0) >= journal_id for table, journal_id in waiter.until.items())
        }
        _answer(waiters, arrived, is_visible=True)


def _answer(waiters: set[_Waiter], some: set[_Waiter], *, is_visible: bool) -> None:
    waiters -= some
    for waiter in some:
        if not waiter.done.done():
            waiter.done.set_result(is_visible)
