"""The pool of query processes: it closes whatever its processes are doing."""

from __future__ import annotations

import asyncio
import threading

import pytest

from query.pool import PoolBusy, ProcessPool, ProcessSettings

SETTINGS = ProcessSettings("http://127.0.0.1:1")


def test_a_pool_closes_before_a_process_has_started() -> None:
    """A server may be told to stop while a process is about to start: it must not start and stay."""

    async def run() -> None:
        has_begun, may_go_on = threading.Event(), threading.Event()

        def settings() -> ProcessSettings:
            has_begun.set()
            may_go_on.wait()
            return SETTINGS

        pool = ProcessPool(settings, size=1, per_caller_max=1, waiting_max=1)
        waiting = asyncio.create_task(pool.acquire("ann", 60))
        await asyncio.to_thread(has_begun.wait)
        closing = asyncio.create_task(pool.close())
        with pytest.raises(PoolBusy):
            await waiting  # `close` has begun, and waits for the start
        may_go_on.set()
        async with asyncio.timeout(60):
            await closing

    asyncio.run(run())


def test_a_pool_closes_while_a_process_loads_its_libraries() -> None:
    async def run() -> None:
        pool = ProcessPool(lambda: SETTINGS, size=1, per_caller_max=1, waiting_max=1)
        waiting = asyncio.create_task(pool.acquire("ann", 60))
        while not pool._all:  # noqa: ASYNC110 - the pool tells nobody
            await asyncio.sleep(0)
        async with asyncio.timeout(60):
            await pool.close()
        with pytest.raises(PoolBusy):
            await waiting

    asyncio.run(run())
