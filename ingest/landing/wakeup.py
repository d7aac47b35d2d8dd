"""Wakes requests that wait for a job, inside one process: after an append, a publish or a flush.

Servers in other processes are not heard. A request that waits therefore also looks by itself now and then.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading


class Wakeup:
    """`wake` may be called from any thread; `wait` from any event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    @property
    def count(self) -> int:
        """How often it was called. Read it before a look: what happens after it is not missed."""
        return self._count

    def wake(self) -> None:
        with self._lock:
            self._count += 1
            waiting = list(self._waiting)
        for loop, event in waiting:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and the request with it
                loop.call_soon_threadsafe(event.set)

    async def wait(self, count: int, timeout_s: float) -> None:
        """Until it was called more often than this, or the time is over."""
        mine = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            if self._count != count:
                return
            self._waiting.add(mine)
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(mine[1].wait(), timeout_s)
        finally:
            with self._lock:
                self._waiting.discard(mine)
