"""The order of clients that commit to one table: one that lost comes next, one that stays away is skipped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from catalog.fast import commit_queue
from catalog.fast.commit_queue import CommitQueue

KEY = ("main", "db", "t")
Scene = Callable[[CommitQueue], Coroutine[Any, Any, None]]


def played(scene: Scene) -> CommitQueue:
    queue = CommitQueue()
    asyncio.run(scene(queue))
    return queue


async def _settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No turn ends by time."""
    for name in ("RETURN_S", "COMMIT_S"):
        monkeypatch.setattr(commit_queue, name, 3600.0)


def test_no_client_waits_before_one_has_lost() -> None:
    async def scene(queue: CommitQueue) -> None:
        for client in ("a", "b"):
            await queue.enter(KEY, client)
            await queue.leave(KEY, client, lost=False)

    assert played(scene).contended == {}


@pytest.mark.usefixtures("patient")
def test_others_wait_until_the_loser_has_landed() -> None:
    async def scene(queue: CommitQueue) -> None:
        await queue.enter(KEY, "a")
        await queue.leave(KEY, "a", lost=True)
        other = asyncio.ensure_future(queue.enter(KEY, "b"))
        await _settle()
        assert not other.done()
        await queue.enter(KEY, "a")
        await queue.leave(KEY, "a", lost=False)
        await other
        await queue.leave(KEY, "b", lost=False)

    assert played(scene).contended == {}


@pytest.mark.usefixtures("patient")
def test_clients_that_lost_get_their_responses_one_after_the_other() -> None:
    async def scene(queue: CommitQueue) -> None:
        heard: list[str] = []

        async def loses_then_lands(client: str) -> None:
            await queue.leave(KEY, client, lost=True)
            heard.append(client)
            await queue.enter(KEY, client)
            await _settle()
            assert heard[-1] == client, "the next one was told before this one had landed"
            await queue.leave(KEY, client, lost=False)

        await asyncio.gather(*(loses_then_lands(client) for client in "abcd"))
        assert heard == list("abcd")

    assert played(scene).contended == {}


def test_a_client_that_does_not_come_back_loses_its_turn() -> None:
    async def scene(queue: CommitQueue) -> None:
        await queue.leave(KEY, "a", lost=True)
        async with asyncio.timeout(60):
            await queue.enter(KEY, "b")
            await queue.leave(KEY, "b", lost=False)

    assert played(scene).contended == {}


@pytest.mark.usefixtures("patient")
def test_tables_have_separate_queues() -> None:
    async def scene(queue: CommitQueue) -> None:
        await queue.leave(KEY, "a", lost=True)
        await queue.enter((*KEY[:2], "u"), "b")

    played(scene)


@pytest.mark.usefixtures("patient")
def test_a_queue_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_queue, "QUEUE_MAX", 1)

    async def scene(queue: CommitQueue) -> None:
        await queue.leave(KEY, "a", lost=True)
        waiting = asyncio.ensure_future(queue.enter(KEY, "b"))
        await _settle()
        await queue.enter(KEY, "c")
        assert not waiting.done()
        waiting.cancel()

    played(scene)
