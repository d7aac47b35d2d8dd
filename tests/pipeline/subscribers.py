"""Subscribers that keep a copy of some tables, lose their connections, crash, and go on with their token."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx

import calve
from calve.client import Batch, Change
from calve.errors import Unavailable

Key = tuple[str, Any]  # table and id

# A subscriber crashes after at most so many changes, and a connection is cut after at most so many bytes.
# Most last for much less. But a subscriber that always crashes before it has applied a small part of what
# it receives needs hours for a large commit: it receives a batch of 10,000 changes again each time.
CRASH_CHANGES_MAX = 40_000
CUT_BYTES_MAX = 4_000_000
SILENCE_S = 5.0


def small_or_large(rng: random.Random, most: int) -> int:
    """A number from 1 to `most`; each order of magnitude is as likely as the next."""
    return int(most ** rng.random())


@dataclass
class Replica:
    """What a subscriber keeps, with the token that belongs to it."""

    rows: dict[Key, dict[str, Any]] = field(default_factory=dict)
    applied: Counter[str] = field(default_factory=Counter)  # by event id
    newest: dict[Key, int] = field(default_factory=dict)  # `v` of the last change of a row
    token: str | None = None
    number: int = 0

    def copied(self) -> Replica:
        return Replica(dict(self.rows), self.applied.copy(), dict(self.newest), self.token, self.number)

    def apply(self, change: Change) -> None:
        row = change.after or change.before
        assert row is not None, change
        key = (change.table, row["id"])
        assert row["v"] >= self.newest.get(key, -1), f"{change} overtakes {self.newest[key]}"
        self.newest[key] = row["v"]
        if change.operation == "delete":
            self.rows.pop(key, None)
        else:
            self.rows[key] = {name: value for name, value in row.items() if not name.startswith("_")}
        if change.event_id is not None:
            self.applied[change.event_id] += 1


class CutBody(httpx.AsyncByteStream):
    """The body of a response, until the connection is cut."""

    def __init__(self, body: httpx.AsyncByteStream, left: int) -> None:
        self._body = body
        self._left = left

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._body:
            yield piece[: self._left]
            self._left -= len(piece)
            if self._left <= 0:
                raise httpx.ReadError("the test cut the connection")

    async def aclose(self) -> None:
        await self._body.aclose()


class CutConnections(httpx.AsyncHTTPTransport):
    """Connections that are cut in the middle of what the server streams."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng
        self.streams = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await super().handle_async_request(request)
        if request.url.path == "/subscribe" and isinstance(response.stream, httpx.AsyncByteStream):
            self.streams += 1
            response.stream = CutBody(response.stream, small_or_large(self._rng, CUT_BYTES_MAX))
        return response


class Subscriber:
    def __init__(self, url: str, pattern: str, rng: random.Random, *, snapshot: bool) -> None:
        self._url = url
        self._pattern = pattern
        self._rng = rng
        self.is_snapshot = snapshot
        self.kept = Replica()
        self.crashes = 0
        self.connections = 0
        self.rows_read = 0  # of snapshots

    async def run(self, until: Target) -> None:
        """Until the copy has everything up to the target."""
        while not until.is_reached_by(self.kept.number):
            transport = CutConnections(self._rng)
            try:
                async with await calve.connect_async(self._url, timeout_s=30, transport=transport) as lake:
                    await self._follow(lake, until)
            except Unavailable:
                await asyncio.sleep(0.2)  # the server restarts
            self.connections += transport.streams

    async def _follow(self, lake: calve.client.AsyncLake, until: Target) -> None:
        """Until a crash, a silence, or the end. What was not kept is lost with a crash.

        After a silence the caller looks at the target again, which may be set after the last commit arrived.
        """
        mine = self.kept.copied()
        begin = mine.token or ("now" if self.is_snapshot else 0)
        batches = lake.subscribe(
            self._pattern, from_=begin, snapshot=self.is_snapshot and mine.token is None, every_commit=True
        )
        left = small_or_large(self._rng, CRASH_CHANGES_MAX)
        while True:
            try:
                batch = await asyncio.wait_for(anext(batches), SILENCE_S)
            except (StopAsyncIteration, TimeoutError):
                return
            for event in batch.events:
                mine.apply(event)
                self.rows_read += event.operation == "read"
                left -= 1
                if left <= 0:
                    self.crashes += 1
                    if self._rng.random() < 0.5:
                        mine.token = event.token  # kept in the middle of a batch
                        self.kept = mine
                    return
            self._keep(mine, batch)
            if until.is_reached_by(mine.number):
                return

    def _keep(self, mine: Replica, batch: Batch) -> None:
        mine.token = batch.token
        mine.number = batch.number if batch.is_complete else mine.number
        self.kept = mine.copied()


class Target:
    """The commit that all copies are to reach, once it is known."""

    def __init__(self) -> None:
        self.number: int | None = None

    def is_reached_by(self, number: int) -> bool:
        return self.number is not None and number >= self.number


class Subscribers:
    """All subscribers, on an event loop in a thread.

    Every second one begins with a snapshot, when the others have applied some of `changes`.
    """

    def __init__(self, url: str, pattern: str, count: int, changes: int, rng: random.Random) -> None:
        self.target = Target()
        self._changes = changes
        self._rng = rng
        self.all = [
            Subscriber(url, pattern, random.Random(rng.random()), snapshot=number % 2 == 1)
            for number in range(count)
        ]
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._main, name="subscribers", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self, number: int, timeout_s: float) -> None:
        """Wait until all copies have this commit; raises what a subscriber raised."""
        self.target.number = number
        self._thread.join(timeout_s)
        if self._failure is not None:
            raise self._failure
        assert not self._thread.is_alive(), f"not at number {number} after {timeout_s} s: {self.state()}"

    def state(self) -> str:
        """Of each subscriber: its commit, its changes, its crashes and its connections."""
        return ", ".join(
            f"{one.kept.number} ({len(one.kept.applied)} changes, {one.crashes} crashes, "
            f"{one.connections} connections)"
            for one in self.all
        )

    def _main(self) -> None:
        async def one_by_one(one: Subscriber, begin: int) -> None:
            while one.is_snapshot and self._applied() < begin:  # noqa: ASYNC110 - others count
                await asyncio.sleep(0.1)
            await one.run(self.target)

        async def together() -> None:
            begins = [self._rng.randrange(self._changes // 2) for _ in self.all]
            await asyncio.gather(*map(one_by_one, self.all, begins))

        try:
            asyncio.run(together())
        except BaseException as error:  # noqa: BLE001 - raised again by `finish`
            self._failure = error

    def _applied(self) -> int:
        return max(len(one.kept.applied) for one in self.all)
