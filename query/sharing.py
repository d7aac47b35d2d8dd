"""Share the queries of server processes with each other through SQL.

A query that ends within a second costs no SQL of its own: every second, a process saves the queries that have
run for longer than that and those that ended since, all in one transaction, and reads which ones it must
cancel. A process without queries writes nothing. It deletes rows that are older than an hour.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import orjson
from fastapi.concurrency import run_in_threadpool

from catalog.errors import CatalogError
from catalog.models import Caller
from catalog.store.queries import QueryStore, SavedQuery
from query.registry import RECENT_MAX, NoSuchQuery, Query, Registry, may_cancel

TURN_S = 1.0
LONG_S = 1.0  # a query that runs for longer is saved while it runs
SILENT_MS_MAX = 15_000  # a running query that was not saved for longer was lost with its process
LIFETIME_MS = 3_600_000
CLEANING_S = 600.0  # also without queries
UNSAVED_WAIT_S = LONG_S + 2 * TURN_S  # after this time a query that runs in another process has been saved
CANCEL_WAIT_S = 5.0
POLL_S = 0.2
_ID = re.compile("[0-9a-f]{32}")

log = logging.getLogger(__name__)


class SharedQueries:
    def __init__(
        self,
        store: QueryStore,
        registry: Registry,
        now_ms: Callable[[], int],
        stop: Callable[[Query, str], None],
    ) -> None:
        """`stop` stops a query of this process for the caller of that name."""
        self._store = store
        self._registry = registry
        self._now_ms = now_ms
        self._stop = stop
        self._saved: deque[str] = deque()  # ids of ended queries of this process that were saved
        self._cleaned_s = time.monotonic()

    async def run(self) -> None:
        """Run until the task is cancelled."""
        while True:
            await asyncio.sleep(TURN_S)
            try:
                await self.take_turn()
            except CatalogError as error:  # queries run all the same; the next turn may succeed
                log.warning("queries were not saved", extra={"reason": error.message})

    async def take_turn(self) -> None:
        now_s = time.monotonic()
        long = [query for query in self._registry.running() if now_s - query.started_s >= LONG_S]
        ended = self._registry.take_ended()
        if not (long or ended or now_s - self._cleaned_s >= CLEANING_S):
            return
        self._saved.extend(query.id for query in ended)
        forgotten = [self._saved.popleft() for _ in range(len(self._saved) - RECENT_MAX)]
        now_ms = self._now_ms()
        rows = [self._row(query, now_ms) for query in (*long, *ended)]
        await run_in_threadpool(self._store.save, rows, forgotten, now_ms - LIFETIME_MS)
        self._cleaned_s = now_s
        if long:
            for query_id, caller in await run_in_threadpool(self._store.cancelled, self._registry.process):
                query = self._registry.find(query_id)
                if query is not None:
                    self._stop(query, caller)

    def listed(self, warehouse: str) -> list[dict[str, Any]]:
        """Return the queries of other processes that read the warehouse. Reads SQL."""
        now_ms = self._now_ms()
        rows = self._store.of_others(self._registry.process, now_ms - LIFETIME_MS)
        alive = [row for row in rows if row.is_ended or row.saved_ms > now_ms - SILENT_MS_MAX]
        documents = ((row, orjson.loads(row.document)) for row in alive)
        return [_shown(row, one, now_ms) for row, one in documents if warehouse in one["warehouses"]]

    async def cancel(self, query_id: str, caller: Caller) -> bool:
        """Cancel a query of another process. Returns False if it has not ended yet."""
        if _ID.fullmatch(query_id) is None or query_id.startswith(self._registry.process):
            raise NoSuchQuery(query_id)
        if not await self._wait(query_id, UNSAVED_WAIT_S, lambda row: row is not None):
            raise NoSuchQuery(query_id)
        row = await run_in_threadpool(self._store.one, query_id)
        if row is None or row.is_ended or not may_cancel(caller, row.caller, row.warehouse):
            raise NoSuchQuery(query_id)
        await run_in_threadpool(self._store.cancel, query_id, caller.name)
        return await self._wait(query_id, CANCEL_WAIT_S, lambda row: row is None or bool(row.is_ended))

    async def _wait(
        self, query_id: str, timeout_s: float, condition: Callable[[SavedQuery | None], bool]
    ) -> bool:
        until_s = time.monotonic() + timeout_s
        while not condition(await run_in_threadpool(self._store.one, query_id)):
            if time.monotonic() >= until_s:
                return False
            await asyncio.sleep(POLL_S)
        return True

    def _row(self, query: Query, now_ms: int) -> SavedQuery:
        document = query.as_json() | {"warehouses": sorted({query.warehouse, *query.warehouses})}
        return SavedQuery(
            id=query.id,
            process=self._registry.process,
            caller=query.caller,
            warehouse=query.warehouse,
            document=orjson.dumps(document).decode(),
            is_ended=int(query.duration_ms is not None),
            saved_ms=now_ms,
        )


def merged(own: Iterable[dict[str, Any]], others: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return running queries first, then the others, the newest first."""
    found = [*own, *others]
    return sorted(found, key=lambda one: (one["state"] not in ("waiting", "running"), -one["started_ms"]))


def _shown(row: SavedQuery, document: dict[str, Any], now_ms: int) -> dict[str, Any]:
    shown = {name: value for name, value in document.items() if name != "warehouses"}
    if not row.is_ended:
        shown["duration_ms"] = float(max(0, now_ms - shown["started_ms"]))
    return shown
