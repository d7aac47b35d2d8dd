"""What subscribers of a server process share: values in memory while there is room, and reads under way."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa

CHUNKS_MAX = 60  # of messages
CHUNK_ROWS = 500
CHUNK_BYTES = 1024 * 1024  # of Arrow data; messages take several times as much

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


class SharedReads:
    """Reads that are under way. All who need the same wait for one read.

    A read goes on if those who wait for it are disconnected: its result is there when they return.
    """

    def __init__(self) -> None:
        self._tasks: dict[Hashable, asyncio.Task[Any]] = {}

    async def once(self, key: Hashable, read: Callable[[], Awaitable[Value]]) -> Value:
        task: asyncio.Task[Value] | None = self._tasks.get(key)
        if task is None:
            task = asyncio.create_task(self._read(key, read))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._tasks[key] = task
        return await asyncio.shield(task)

    async def _read(self, key: Hashable, read: Callable[[], Awaitable[Value]]) -> Value:
        try:
            return await read()
        finally:
            del self._tasks[key]


def chunk_rows(rows: pa.Table) -> int:
    """Return how many of some rows are made into messages at a time: few, if they are wide."""
    few = CHUNK_BYTES * int(rows.num_rows) // max(1, int(rows.nbytes))
    return max(1, min(CHUNK_ROWS, few))
