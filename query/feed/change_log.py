"""Read published changes once for all subscribers of this server process.

Commits and changes are cached in memory up to a limit, and the least recently used are removed first. Several
subscribers that need the same changes wait for one read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from catalog.models import Warehouse
from catalog.services.catalog import Catalog
from query.feed.cursors import Cursor
from query.feed.events import Message, changes_of
from query.feed.publishes import ChangedTable, Publish, TableChanges, read_changes, read_publishes
from query.feed.sharing import CHUNKS_MAX, LruCache, SharedReads, chunk_rows

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

    from query.tables.access import TableOpener

PUBLISHES_MAX = 2000
CHANGES_BYTES_MAX = 64 * 1024 * 1024  # of Arrow data


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Some changes of a table in one publish."""

    messages: list[Message]
    schema: Schema
    end: int  # the row after the last one
    is_last: bool


class ChangeLog:
    def __init__(self, catalog: Catalog, opener: Callable[[], TableOpener], threads: Executor) -> None:
        self._catalog = catalog
        self._opener = opener
        self._threads = threads
        self._publishes: LruCache[tuple[str, int, int], Publish] = LruCache(PUBLISHES_MAX)
        self._changes: LruCache[Any, TableChanges] = LruCache(
            CHANGES_BYTES_MAX, lambda found: int(found.rows.nbytes)
        )
        self._chunks: LruCache[Any, Chunk] = LruCache(CHUNKS_MAX)
        self._chunk_rows: LruCache[Any, int] = LruCache(PUBLISHES_MAX)
        self._reads = SharedReads()
        self.reads = 0  # of changes, for tests and metrics

    async def publish_after(self, warehouse: Warehouse, number: int) -> Publish | None:
        """Return the commit after a number; None if there is none yet. MustRefetch if the history begins
        later.
        """
        found = self._publishes.get((warehouse.name, warehouse.created_ms, number + 1))
        if found is None:
            await self._once(
                ("publishes", warehouse, number),
                lambda: read_publishes(self._catalog, self._opener(), warehouse.name, number),
                lambda read: self._keep(warehouse, read),
            )
            found = self._publishes.get((warehouse.name, warehouse.created_ms, number + 1))
        return found

    def _keep(self, warehouse: Warehouse, found: list[Publish]) -> None:
        for publish in found:
            self._publishes.put((warehouse.name, warehouse.created_ms, publish.number), publish)

    def _keep_changes(self, key: Any, found: TableChanges) -> None:
        self.reads += 1
        self._changes.put(key, found)
        self._chunk_rows.put(key, chunk_rows(found.rows))

    async def chunk(
        self, warehouse: Warehouse, former: Cursor, publish: Publish, changed: ChangedTable, row: int
    ) -> Chunk:
        """Return the changes around a row of a table in a publish. `former` is the cursor before it."""
        whole = (warehouse, publish.number, changed.key)
        known = self._chunk_rows.get(whole)
        chunk = self._chunks.get((*whole, row // known)) if known is not None else None
        if chunk is not None:
            return chunk
        table: TableChanges = self._changes.get(whole) or await self._once(
            whole,
            lambda: read_changes(self._catalog, self._opener(), warehouse.name, publish, changed),
            lambda read: self._keep_changes(whole, read),
        )
        size = chunk_rows(table.rows)
        key = (*whole, row // size)
        made: Chunk = await self._once(
            key,
            lambda: _chunk_of(former, publish, changed, table, row // size * size, size),
            lambda read: self._chunks.put(key, read),
        )
        return made

    async def _once(self, key: Any, read: Callable[[], Any], keep: Callable[[Any], None]) -> Any:
        """Run `read` in a thread, once for all callers that wait for the key."""

        async def kept() -> Any:
            found = await asyncio.get_running_loop().run_in_executor(self._threads, read)
            keep(found)
            return found

        return await self._reads.once(key, kept)


def _chunk_of(
    former: Cursor, publish: Publish, changed: ChangedTable, table: TableChanges, first: int, count: int
) -> Chunk:
    messages = changes_of(former, publish, changed, table, first, count)
    return Chunk(messages, table.schema, first + count, is_last=first + count >= table.rows.num_rows)
