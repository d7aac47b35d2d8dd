"""Read published changes once for all subscribers of this server process.

Commits and changes are cached in memory up to a limit, and the least recently used are removed first. Several
subscribers that need the same changes wait for one read.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from catalog.models import Warehouse
from catalog.services.catalog import Catalog
from query.feed.cursors import Cursor
from query.feed.events import Message, changes_of
from query.feed.publishes import ChangedTable, Publish, TableChanges, read_changes, read_publishes

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

    from query.tables.access import TableOpener

CHUNK_ROWS = 500
PUBLISHES_MAX = 2000
CHANGES_BYTES_MAX = 64 * 1024 * 1024  # of Arrow data
CHUNKS_MAX = 60  # of messages

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class LruCache(Generic[Key, Value]):
    """Keeps the most recently used values. `size` returns the weight of a value."""

    def __init__(self, size_max: int, size: Callable[[Value], int] = lambda _: 1) -> None:
        self._size_max = size_max
        self._size = size
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._total = 0

    def get(self, key: Key) -> Value | None:
        found = self._values.get(key)
        if found is not None:
            self._values.move_to_end(key)
        return found

    def put(self, key: Key, value: Value) -> None:
        if key in self._values:
            self._total -= self._size(self._values.pop(key))
        self._values[key] = value
        self._total += self._size(value)
        while self._total > self._size_max and len(self._values) > 1:
            self._total -= self._size(self._values.popitem(last=False)[1])


class Chunk:
    """Some changes of a table in one publish."""

    __slots__ = ("is_last", "messages", "schema")

    def __init__(self, messages: list[Message], schema: Schema, *, is_last: bool) -> None:
        self.messages = messages
        self.schema = schema
        self.is_last = is_last


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
        self._reads: dict[Any, asyncio.Task[Any]] = {}
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

    async def chunk(
        self, warehouse: Warehouse, former: Cursor, publish: Publish, changed: ChangedTable, first: int
    ) -> Chunk:
        """Return some changes of a table in a publish. `former` is the cursor before the publish."""
        whole = (warehouse, publish.number, changed.key)
        key = (*whole, first)
        chunk = self._chunks.get(key)
        if chunk is not None:
            return chunk
        changes = self._changes.get(whole)
        if changes is None:
            changes = await self._once(
                whole,
                lambda: read_changes(self._catalog, self._opener(), warehouse.name, publish, changed),
                lambda read: self._keep_changes(whole, read),
            )
        table: TableChanges = changes
        found: Chunk = await self._once(
            key,
            lambda: Chunk(
                changes_of(former, publish, changed, table, first, CHUNK_ROWS),
                table.schema,
                is_last=first + CHUNK_ROWS >= table.rows.num_rows,
            ),
            lambda read: self._chunks.put(key, read),
        )
        return found

    async def _once(self, key: Any, read: Callable[[], Any], keep: Callable[[Any], None]) -> Any:
        """Run `read` in a thread, once for all callers that wait for the key."""
        task = self._reads.get(key)
        if task is None:
            task = asyncio.create_task(self._read(key, read, keep))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._reads[key] = task
        return await asyncio.shield(task)

    async def _read(self, key: Any, read: Callable[[], Any], keep: Callable[[Any], None]) -> Any:
        try:
            found = await asyncio.get_running_loop().run_in_executor(self._threads, read)
            keep(found)
            return found
        finally:
            del self._reads[key]
