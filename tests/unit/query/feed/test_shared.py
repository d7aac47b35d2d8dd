"""What subscribers of a process share: one poll, one read of a publish, one check of a caller's rights."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from catalog.errors import NotAuthorized
from query.feed.change_log import LruCache
from query.feed.heads import Head, Heads
from query.feed.rights import VALID_S, RightsChecks


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
