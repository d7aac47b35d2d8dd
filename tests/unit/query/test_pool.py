"""The pool of query processes: it closes whatever its processes are doing."""

from __future__ import annotations

import asyncio

import pytest

from query.pool import PoolBusy, ProcessPool, ProcessSettings


def test_a_pool_closes_while_a_process_starts() -> None:
    """A server may be told to stop right after its first query came."""

    async def run() -> None:
        settings = ProcessSettings("http://127.0.0.1:1")
        pool = ProcessPool(lambda: settings, size=1, per_caller_max=1, waiting_max=1)
        query = asyncio.create_task(pool.acquire("caller", 60))
        await asyncio.sleep(0)  # the start is under way
        async with asyncio.timeout(60):
            await pool.close()
        with pytest.raises(PoolBusy, match="the server is stopping"):
            await query

    asyncio.run(run())
