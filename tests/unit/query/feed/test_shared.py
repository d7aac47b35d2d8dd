"""What subscribers of a process share: one poll, one read of a publish, one check of a caller's rights."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from catalog.errors import NotAuthorized
from query.feed.heads import Head, Heads
from query.feed.rights import VALID_S, RightsChecks
from query.feed.sharing import CHUNK_BYTES, CHUNK_ROWS, LruCache, SharedReads, chunk_rows


def test_one_poll_wakes_all_who_wait() -> None:
    async def run() -> tuple[int, int, int]:
        found = {"main": Head(1, 7)}
        reads = 0

        def read() -> dict[str, Head]:
            nonlocal reads
            reads += 1
            return dict(found)

        with ThreadPoolExecutor(1) as threads:
            heads = Heads(read, threads)
            waiting = [asyncio.create_task(heads.wait("main", Head(1, 7), 60)) for _ in range(500)]
            async with asyncio.timeout(60):
                while reads < 3:  # noqa: ASYNC110 - another thread counts
                    await asyncio.sleep(0.01)
            before = reads
            assert not any(task.done() for task in waiting)
            found["main"] = Head(2, 7)
            woken = set(await asyncio.gather(*waiting))
            assert woken == {Head(2, 7)}
            await asyncio.sleep(0.3)  # nobody waits any more, so nothing is read
            return before, reads, heads.polls

    before, after, polls = asyncio.run(run())
    assert after - before <= 2
    assert polls == after


def test_a_wait_ends_after_its_time_and_when_the_warehouse_is_gone() -> None:
    async def run() -> None:
        found = {"main": Head(1, 7)}
        with ThreadPoolExecutor(1) as threads:
            heads = Heads(lambda: dict(found), threads)
            assert await heads.wait("main", Head(1, 7), 0.05) == Head(1, 7)
            waiting = asyncio.create_task(heads.wait("main", Head(1, 7), 60))
            found.clear()
            found["other"] = Head(1, 1)
            assert await waiting is None

    asyncio.run(run())


def test_rights_are_checked_again_after_a_while() -> None:
    async def run(now_s: list[float], checks: list[str], allowed: Callable[[], bool]) -> None:
        def check(authorization: str | None, _warehouse: str) -> None:
            checks.append(str(authorization))
            if not allowed():
                raise NotAuthorized("revoked")

        with ThreadPoolExecutor(1) as threads:
            rights = RightsChecks(check, threads, lambda: now_s[0])
            for _ in range(10):
                await rights.check("a", "main")
            await rights.check("b", "main")
            assert checks == ["a", "b"]
            now_s[0] += VALID_S
            await rights.check("a", "main")
            assert checks == ["a", "b", "a"]
            state["allowed"] = False
            await rights.check("a", "main")
            now_s[0] += VALID_S
            with pytest.raises(NotAuthorized):
                await rights.check("a", "main")

    state = {"allowed": True}
    asyncio.run(run([0.0], [], lambda: state["allowed"]))


def test_the_cache_is_bounded_by_size() -> None:
    cache: LruCache[str, bytes] = LruCache(10, len)
    for key in "abc":
        cache.put(key, key.encode() * 4)
    assert [cache.get(key) for key in "abc"] == [None, b"bbbb", b"cccc"]
    assert cache.get("b") == b"bbbb"
    cache.put("d", b"dd")
    cache.put("e", b"e" * 5)
    assert [key for key in "abcde" if cache.get(key)] == ["d", "e"]
    cache.put("f", b"f" * 50)  # larger than the cache: it is kept for those who use it now
    assert cache.get("f") is not None
    assert cache.get("e") is None


def test_a_read_is_shared_and_goes_on_when_those_who_wait_are_disconnected() -> None:
    async def run() -> None:
        reads, may_end, kept = SharedReads(), asyncio.Event(), []

        async def read() -> int:
            await may_end.wait()
            kept.append(7)
            return 7

        waiting = [asyncio.create_task(reads.once("a", read)) for _ in range(3)]
        await asyncio.sleep(0)  # all of them wait
        waiting[0].cancel()
        may_end.set()
        assert await asyncio.gather(*waiting[1:]) == [7, 7]
        assert kept == [7]
        may_end.clear()
        alone = asyncio.create_task(reads.once("a", read))
        await asyncio.sleep(0)
        alone.cancel()
        await asyncio.gather(alone, return_exceptions=True)
        may_end.set()
        assert await reads.once("a", read) == 7  # waits for the read of the one that is gone
        assert kept == [7, 7]

    asyncio.run(run())


def test_a_read_that_fails_is_repeated_by_the_next_who_needs_it() -> None:
    async def run() -> None:
        reads, failures = SharedReads(), [OSError("storage")]

        async def read() -> int:
            if failures:
                raise failures.pop()
            return 7

        with pytest.raises(OSError, match="storage"):
            await reads.once("a", read)
        assert await reads.once("a", read) == 7

    asyncio.run(run())


def test_wide_rows_are_made_into_messages_a_few_at_a_time() -> None:
    assert chunk_rows(pa.table({"a": [1, 2]})) == CHUNK_ROWS
    wide = pa.table({"a": ["x" * (CHUNK_BYTES // 4)] * 10})
    assert chunk_rows(wide) in (3, 4)
    assert chunk_rows(pa.table({"a": ["x" * 2 * CHUNK_BYTES]})) == 1
    assert chunk_rows(pa.table({"a": pa.array([], pa.int64())})) >= 1
