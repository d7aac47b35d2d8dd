"""Dead letters hold raw rows: who may read them, who may change them, and what others see of them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.security.answers import assert_error
from tests.security.guarded import Guarded, Principal


@pytest.fixture
def letter(guarded: Guarded) -> str:
    """An open dead letter of acme."""
    return guarded.makers["acme"].letter()


def _shown(guarded: Guarded, letter: str) -> dict[str, Any]:
    found: dict[str, Any] = guarded.makers["acme"].rest.lake("GET", f"acme/dead-letters/{letter}").json()
    return found


def _calls(guarded: Guarded, principal: Principal, warehouse: str, letter: str) -> Iterator[httpx.Response]:
    """Everything that can be done to one letter, under the name of a warehouse."""
    event = guarded.makers["acme"].changes()["events"][0]
    path = f"/lake/v1/{warehouse}/dead-letters"
    with guarded.client(principal) as http:
        yield http.get(f"{path}/{letter}")
        yield http.get(path, params={"pageToken": letter})
        yield http.put(f"{path}/{letter}", json={"event": event})
        yield http.post(f"{path}/replay", json={"ids": [letter]})
        yield http.delete(f"{path}/{letter}")


def test_a_reader_sees_letters_and_changes_none(guarded: Guarded, letter: str) -> None:
    before = _shown(guarded, letter)
    assert before["state"] == "open"
    assert '"id"' in before["original"]
    load, page, fix, replay, drop = _calls(guarded, guarded.reader, "acme", letter)
    assert load.json() == before
    assert page.status_code == 200
    with guarded.client(guarded.reader) as http:
        listed = http.get("/lake/v1/acme/dead-letters", params={"pageSize": 1000}).json()["dead-letters"]
    assert letter in [found["id"] for found in listed]
    for refused in (fix, replay, drop):
        assert_error(refused, 403)
    assert _shown(guarded, letter) == before


@pytest.mark.parametrize("who", ["writer", "admin"])
def test_a_writer_and_an_administrator_fix_replay_and_drop(guarded: Guarded, who: str) -> None:
    principal = guarded.writer if who == "writer" else guarded.admins["acme"]
    event = guarded.makers["acme"].changes()["events"][0]
    fixed, dropped = guarded.makers["acme"].letter(), guarded.makers["acme"].letter()
    with guarded.client(principal) as http:
        path = "/lake/v1/acme/dead-letters"
        assert http.put(f"{path}/{fixed}", json={"event": event}).json()["state"] == "fixed"
        assert http.post(f"{path}/replay", json={"ids": [fixed]}).json() == {"replayed": 1}
        assert http.delete(f"{path}/{dropped}").status_code == 204
    assert _shown(guarded, fixed)["state"] == "replayed"
    assert _shown(guarded, dropped)["state"] == "dropped"


def test_letters_of_another_warehouse_look_absent(guarded: Guarded, letter: str) -> None:
    """By the other warehouse's name, and by one's own name with the id of the other's letter."""
    before, blue = _shown(guarded, letter), guarded.admins["blue"]
    for warehouse in ("acme", "blue"):
        there = [(a.status_code, a.text) for a in _calls(guarded, blue, warehouse, letter)]
        unknown = str(uuid.uuid4())
        nowhere = list(_calls(guarded, blue, warehouse, unknown))
        assert there == [(a.status_code, a.text.replace(unknown, letter)) for a in nowhere]
        assert {status for status, _ in there} == {404}
    with guarded.client(blue) as http:
        own = http.get("/lake/v1/blue/dead-letters", params={"pageSize": 1000}).json()["dead-letters"]
    assert letter not in [found["id"] for found in own]
    assert _shown(guarded, letter) == before


def test_a_replay_of_all_letters_takes_those_of_the_warehouse_only(guarded: Guarded, letter: str) -> None:
    core = guarded.makers["core"]
    own = core.letter()
    answer = core.rest.lake("POST", "core/dead-letters/replay", json={})
    assert answer.json()["replayed"] >= 1
    assert core.rest.lake("GET", f"core/dead-letters/{own}").json()["state"] == "replayed"
    assert _shown(guarded, letter)["state"] == "open"
