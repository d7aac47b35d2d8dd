"""Turns of those who commit to one table: who lost comes next, and nobody waits for one who does not come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from catalog.api import turns
from catalog.api.turns import Turns

KEY = ("main", "db", "t")
Scene = Callable[[Turns], Coroutine[Any, Any, None]]


def played(scene: Scene) -> Turns:
    stage = Turns()
    asyncio.run(scene(stage))
    return stage


async def _settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is given up."""
    for name in ("COME_BACK_S", "CARRY_OUT_S"):
        monkeypatch.setattr(turns, name, 3600.0)


def test_nobody_waits_where_nobody_lost() -> None:
    async def scene(stage: Turns) -> None:
        for client in ("a", "b"):
            await stage.before(KEY, client)
            await stage.after(KEY, client, lost=False)

    assert played(scene)._lines == {}


@pytest.mark.usefixtures("patient")
def test_others_wait_until_the_loser_has_landed() -> None:
    async def scene(stage: Turns) -> None:
        await stage.before(KEY, "a")
        await stage.after(KEY, "a", lost=True)
        other = asyncio.ensure_future(stage.before(KEY, "b"))
        await _settle()
        assert not other.done()
        await stage.before(KEY, "a")
        await stage.after(KEY, "a", lost=False)
        await other
        await stage.after(KEY, "b", lost=False)

    assert played(scene)._lines == {}


@pytest.mark.usefixtures("patient")
def test_losers_hear_of_it_one_after_the_other() -> None:
    async def scene(stage: Turns) -> None:
        heard: list[str] = []

        async def loses_then_lands(client: str) -> None:
            await stage.after(KEY, client, lost=True)
            heard.append(client)
            await stage.before(KEY, client)
            await _settle()
            assert heard[-1] == client, "the next one was told before this one had landed"
            await stage.after(KEY, client, lost=False)

        await asyncio.gather(*(loses_then_lands(client) for client in "abcd"))
        assert heard == list("abcd")

    assert played(scene)._lines == {}


def test_one_who_does_not_come_back_is_given_up() -> None:
    async def scene(stage: Turns) -> None:
        await stage.after(KEY, "a", lost=True)
        async with asyncio.timeout(60):
            await stage.before(KEY, "b")
            await stage.after(KEY, "b", lost=False)

    assert played(scene)._lines == {}


@pytest.mark.usefixtures("patient")
def test_a_table_of_another_name_is_another_matter() -> None:
    async def scene(stage: Turns) -> None:
        await stage.after(KEY, "a", lost=True)
        await stage.before((*KEY[:2], "u"), "b")

    played(scene)


@pytest.mark.usefixtures("patient")
def test_a_line_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "LINE_MAX", 1)

    async def scene(stage: Turns) -> None:
        await stage.after(KEY, "a", lost=True)
        waiting = asyncio.ensure_future(stage.before(KEY, "b"))
        await _settle()
        await stage.before(KEY, "c")
        assert not waiting.done()
        waiting.cancel()

    played(scene)
