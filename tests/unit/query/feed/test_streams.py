"""Streams to clients: heartbeats, slow consumers, and the end when the server stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from catalog.errors import NotAuthorized
from query.feed.cursors import Cursor
from query.feed.errors import MustRefetch
from query.feed.events import Message
from query.feed.streams import PIECE_BYTES, pieces, send_all


class MadeUp:
    """A subscription whose messages a test gives."""

    def __init__(self, *rounds: list[Message] | Exception) -> None:
        self.cursor = Cursor(1, 0, 1)
        self._rounds = list(rounds)
        self.waits = 0

    async def pending(self) -> AsyncIterator[Message]:
        found = self._rounds.pop(0) if self._rounds else []
        if isinstance(found, Exception):
            raise found
        for message in found:
            self.cursor = message.cursor
            yield message

    async def wait(self, timeout_s: float) -> bool:
        self.waits += 1
        if not self._rounds:
            await asyncio.sleep(timeout_s)
        return bool(self._rounds)


def change(number: int, size: int = 10) -> Message:
    return Message("change", {"text": "x" * size}, Cursor(1, number, 1))


def received(subscription: MadeUp, count: int, **more: float) -> list[list[Message]]:
    async def run() -> list[list[Message]]:
        found = []
        async for piece in pieces(subscription, **more):  # type: ignore[arg-type]
            found.append(piece)
            if len(found) == count:
                break
        return found

    return asyncio.run(run())


def test_messages_of_one_commit_are_one_piece_and_large_ones_are_cut() -> None:
    small, large = [change(1), change(1)], [change(2, PIECE_BYTES) for _ in range(3)]
    found = received(MadeUp(small, large), 4)
    assert [len(piece) for piece in found] == [2, 1, 1, 1]


def test_heartbeats_while_nothing_happens() -> None:
    assert received(MadeUp([change(1)]), 3, heartbeat_s=0.01)[1:] == [[], []]


def test_a_stream_ends_after_its_time() -> None:
    found = received(MadeUp([change(1)], [change(2)]), 9, timeout_s=0)
    assert [len(piece) for piece in found] == [1]  # everything that was there, and no more


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [(MustRefetch("too old"), "must-refetch", 410), (NotAuthorized("revoked"), "error", 401)],
)
def test_an_error_is_the_last_message(error: Exception, kind: str, code: int) -> None:
    [[first], [last]] = received(MadeUp([change(1)], error), 9)
    assert first.kind == "change"
    assert (last.kind, last.data["code"]) == (kind, code)
    assert last.cursor == first.cursor


class SlowClient:
    """Reads the first pieces, then nothing until it is told to."""

    def __init__(self, reads: int) -> None:
        self.reads = reads
        self.got: list[Message] = []
        self.may_read = asyncio.Event()
        self.is_waiting = asyncio.Event()

    async def write(self, messages: list[Message]) -> None:
        if len(self.got) >= self.reads and not self.may_read.is_set():
            self.is_waiting.set()
            await self.may_read.wait()
        self.got += messages


def test_a_slow_consumer_is_told_and_gets_the_token_to_go_on_from() -> None:
    async def run() -> list[Message]:
        client = SlowClient(reads=2)
        subscription = MadeUp(*([change(n)] for n in range(1, 100)))
        sending = asyncio.ensure_future(
            send_all(subscription, client.write, slow_s=0.01, gone_s=60)  # type: ignore[arg-type]
        )
        await client.is_waiting.wait()
        await asyncio.sleep(0.05)  # longer than a client may be slow
        client.may_read.set()
        await sending
        return client.got

    got = asyncio.run(run())
    assert [message.kind for message in got] == ["change", "change", "slow-consumer"]
    assert got[-1].cursor == got[-2].cursor  # the third change was not sent


def test_a_client_that_never_reads_is_given_up() -> None:
    async def run() -> None:
        client = SlowClient(reads=0)
        subscription = MadeUp([change(1)])
        with pytest.raises(TimeoutError):
            await send_all(subscription, client.write, slow_s=0.01, gone_s=0.01)  # type: ignore[arg-type]
        assert client.got == []

    asyncio.run(run())


def test_what_is_queued_counts_as_sent() -> None:
    async def run() -> list[Message]:
        got: list[Message] = []
        is_told = asyncio.Event()

        async def write(messages: list[Message]) -> None:
            got.extend(messages)
            if messages[0].kind == "change":
                await is_told.wait()

        subscription = MadeUp([change(1)], [change(2)])
        await send_all(subscription, write, is_queued=True, slow_s=0.01)  # type: ignore[arg-type]
        return got

    first, told = asyncio.run(run())
    assert told.kind == "slow-consumer"
    assert told.cursor == first.cursor
