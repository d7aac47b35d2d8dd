"""Many wait, one looks."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from catalog.errors import Unavailable
from catalog.shutdown import stopping
from ingest.api.visibility import VisibilityWaiter
from ingest.change import TableName
from ingest.landing.status import LandingStatus

A, B = ("n", "a"), ("n", "b")


class Rising:
    """Lands one more id with each look; fails at the looks that are named."""

    def __init__(self, *, fails_at: Collection[int] = ()) -> None:
        self.looks: list[set[TableName]] = []
        self._fails_at = fails_at

    def landed(self, _warehouse: str, tables: Collection[TableName]) -> Mapping[TableName, int]:
        self.looks.append(set(tables))
        if len(self.looks) in self._fails_at:
            raise Unavailable("away")
        return dict.fromkeys(tables, len(self.looks))


def waited(landing: Rising, *wishes: tuple[dict[TableName, int], float]) -> list[bool]:
    async def run() -> list[Any]:
        with ThreadPoolExecutor(2) as threads:
            waiter = VisibilityWaiter(cast("LandingStatus", landing), threads, poll_ms=1)
            return await asyncio.gather(
                *(waiter.wait("main", until, timeout_s) for until, timeout_s in wishes)
            )

    return asyncio.run(run())


def test_each_gets_its_answer_from_shared_looks() -> None:
    landing = Rising()
    assert waited(landing, ({A: 3}, 30), ({B: 5}, 30), ({A: 4, B: 2}, 30)) == [True] * 3
    assert len(landing.looks) == 5
    assert landing.looks[0] == {A, B}
    assert landing.looks[-1] == {B}


def test_nothing_to_wait_for() -> None:
    landing = Rising()
    assert waited(landing, ({}, 0)) == [True]
    assert not landing.looks


def test_in_vain() -> None:
    assert waited(Rising(), ({A: 10**9}, 0.05), ({A: 2}, 30)) == [False, True]


def test_a_look_that_fails_is_repeated() -> None:
    landing = Rising(fails_at=(1, 2))
    assert waited(landing, ({A: 4}, 30)) == [True]
    assert len(landing.looks) == 4


def test_again_after_a_pause() -> None:
    landing = Rising()

    async def run() -> list[bool]:
        with ThreadPoolExecutor(1) as threads:
            waiter = VisibilityWaiter(cast("LandingStatus", landing), threads, poll_ms=1)
            return [await waiter.wait("main", {A: number}, 30) for number in (1, 2)]

    assert asyncio.run(run()) == [True, True]


def test_a_server_that_stops_keeps_nobody_waiting() -> None:
    stopping.set()
    try:
        assert waited(Rising(), ({A: 10**9}, 60), ({A: 1}, 60)) == [False, True]
    finally:
        stopping.clear()
