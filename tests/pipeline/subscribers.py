"""Subscribers that keep a copy of some tables, lose their connections, crash, and go on with their token."""

from __future__ import annotations

import asyncio
import copy
import random
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import calve
from calve.client import Batch, Change
from calve.errors import Unavailable

Key = tuple[str, Any]  # table and id


@dataclass
class Replica:
    """What a subscriber keeps, with the token that belongs to it."""

    rows: dict[Key, dict[str, Any]] = field(default_factory=dict)
    applied: Counter[str] = field(default_factory=Counter)  # by event id
    newest: dict[Key, int] = field(default_factory=dict)  # `v` of the last change of a row
    token: str | None = None
    number: int = 0

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


class Subscriber:
    def __init__(self, url: str, pattern: str, rng: random.Random, *, snapshot: bool) -> None:
        self._url = url
        self._pattern = pattern
        self._rng = rng
        self._snapshot = snapshot
        self.kept = Replica()
        self.restarts = 0

    async def run(self, until: Target) -> None:
        """Until the copy has everything up to the target."""
        while not until.is_reached_by(self.kept.number):
            try:
                async with await calve.connect_async(self._url, timeout_s=30) as lake:
                    await self._follow(lake, until)
            except Unavailable:
                await asyncio.sleep(0.2)  # the server restarts
            self.restarts += 1

    async def _follow(self, lake: calve.client.AsyncLake, until: Target) -> None:
        """Until a crash, or the end. What was not kept is lost with the crash."""
        mine = copy.deepcopy(self.kept)
        begin = mine.token or ("now" if self._snapshot else 0)
        batches = lake.subscribe(
            self._pattern, from_=begin, snapshot=self._snapshot and mine.token is None, every_commit=True
        )
        left = self._rng.randrange(1, 120)
        async for batch in batches:
            for event in batch.events:
                mine.apply(event)
                left -= 1
                if left <= 0:
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
        self.kept = copy.deepcopy(mine)


class Target:
    """The commit that all copies are to reach, once it is known."""

    def __init__(self) -> None:
        self.number: int | None = None

    def is_reached_by(self, number: int) -> bool:
        return self.number is not None and number >= self.number


class Subscribers:
    """All subscribers, on an event loop in a thread."""

    def __init__(self, url: str, pattern: str, count: int, rng: random.Random) -> None:
        self.target = Target()
        self.all = [
            Subscriber(url, pattern, random.Random(rng.random()), snapshot=number % 2 == 1)
            for number in range(count)
        ]
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._main, name="subscribers")

    def start(self) -> None:
        self._thread.start()

    def finish(self, number: int, timeout_s: float) -> None:
        """Wait until all copies have this commit; raises what a subscriber raised."""
        self.target.number = number
        self._thread.join(timeout_s)
        if self._failure is not None:
            raise self._failure
        assert not self._thread.is_alive(), [one.kept.number for one in self.all]

    def _main(self) -> None:
        async def together() -> None:
            await asyncio.gather(*(one.run(self.target) for one in self.all))

        try:
            asyncio.run(together())
        except BaseException as error:  # noqa: BLE001 - raised again by `finish`
            self._failure = error
