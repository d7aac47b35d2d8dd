"""The newest commit of each warehouse: one poll of the database serves every subscriber of this process.

A poll that fails is logged and repeated. Subscribers are woken in small groups, so that other requests are
served between them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass

import sqlalchemy as sa

from catalog.errors import CatalogError
from catalog.shutdown import stopping
from catalog.store.database import Database
from catalog.store.schema import heads, warehouses

POLL_S = 0.1
WOKEN_AT_ONCE = 50

log = logging.getLogger(__name__)

READ_HEADS = sa.select(heads.c.warehouse, heads.c.number, warehouses.c.created_ms).join(
    warehouses, warehouses.c.warehouse == heads.c.warehouse
)


@dataclass(frozen=True, slots=True)
class Head:
    number: int
    generation: int  # when the warehouse was created


def read_heads(database: Database) -> dict[str, Head]:
    return {name: Head(number, created_ms) for name, number, created_ms in database.fetch_all(READ_HEADS)}


@dataclass(slots=True, eq=False)
class _Waiter:
    known: Head
    done: asyncio.Future[None]


class Heads:
    def __init__(self, read: Callable[[], Mapping[str, Head]], threads: Executor) -> None:
        self._read = read
        self._threads = threads
        self._heads: Mapping[str, Head] = {}
        self._waiters: dict[str, set[_Waiter]] = {}
        self._poll: asyncio.Task[None] | None = None
        self.polls = 0

    async def now(self, warehouse: str) -> Head | None:
        """Read the head from the database; None if the warehouse does not exist."""
        await self._refresh()
        return self._heads.get(warehouse)

    async def wait(self, warehouse: str, known: Head, timeout_s: float) -> Head | None:
        """Return the head once it differs from the known one; the known one after the timeout. None if the
        warehouse does not exist any more. Returns early when the server stops.
        """
        loop = asyncio.get_running_loop()
        waiter = _Waiter(known, loop.create_future())
        self._waiters.setdefault(warehouse, set()).add(waiter)
        if self._poll is None:
            self._poll = loop.create_task(self._poll_while_needed())
        timer = loop.call_later(timeout_s, _resolve, waiter.done)
        try:
            await waiter.done
        finally:
            timer.cancel()
            waiters = self._waiters[warehouse]
            waiters.discard(waiter)
            if not waiters:
                del self._waiters[warehouse]
        return self._heads.get(warehouse, known if not self._heads else None)

    async def _poll_while_needed(self) -> None:
        try:
            while self._waiters:
                try:
                    await self._refresh()
                except CatalogError as error:
                    log.warning("cannot read the newest commits", extra={"reason": error.message})
                except Exception:
                    log.exception("cannot read the newest commits")
                else:
                    await self._wake()
                await asyncio.sleep(POLL_S)
        finally:
            self._poll = None

    async def _refresh(self) -> None:
        self.polls += 1
        self._heads = await asyncio.get_running_loop().run_in_executor(self._threads, self._read)

    async def _wake(self) -> None:
        due = [
            waiter
            for warehouse, waiters in self._waiters.items()
            for waiter in waiters
            if self._heads.get(warehouse) != waiter.known or stopping.is_set()
        ]
        for count, waiter in enumerate(due, 1):
            _resolve(waiter.done)
            if count % WOKEN_AT_ONCE == 0:
                await asyncio.sleep(0)


def _resolve(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)
