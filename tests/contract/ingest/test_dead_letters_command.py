"""`calve dead-letters` against a running server: list, show, fix, replay, drop."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.contract.ingest.hand import Hand
from tests.harness.stacks import Stack, Stacks

TOO_LARGE = 2**70  # for the column, whose first value was 1


@pytest.fixture(scope="module")
def stack(stacks: Stacks, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder: Path = tmp_path_factory.mktemp("letters")
    with stacks.started("embedded", folder, {"CALVE_FRESHNESS_TARGET_MS": "0"}) as started:
        yield started


@pytest.fixture
def table(stack: Stack) -> str:
    """A table with two dead letters."""
    space, hand = f"n{uuid.uuid4().hex[:8]}", Hand(stack.url)
    for rows in ([{"id": 1, "n": 1}], [{"id": 2, "n": TOO_LARGE}, {"id": 3, "n": TOO_LARGE}]):
        hand.post(f"{space}.t", *rows)
        hand.land(hand.lease(space))
    return f"{space}.t"


def printed(stack: Stack, *words: str) -> str:
    ended = stack.server.command("dead-letters", *words)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def listed(stack: Stack, table: str, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(
        printed(stack, "list", "--table", table, "--format", "json", *words)
    )
    return found


def test_a_dead_letter_is_fixed_and_replayed(stack: Stack, table: str) -> None:
    first, second = listed(stack, table)
    assert (first["state"], first["table"]) == ("open", table)
    lines = printed(stack, "list", "--table", table).splitlines()
    assert [line.split("\t")[:3] for line in lines] == [[x["id"], "open", table] for x in (first, second)]
    shown = json.loads(printed(stack, "show", first["id"]))
    event = json.loads(shown["original"])
    assert event["after"] == {"id": 2, "n": TOO_LARGE}
    file = stack.server.folder / f"{uuid.uuid4().hex}.json"
    file.write_text(json.dumps({**event, "after": {"id": 2, "n": 2}}))
    assert f"replay {first['id']}" in printed(stack, "fix", first["id"], str(file))
    assert printed(stack, "replay", first["id"]) == "1 changes are sent again.\n"
    assert printed(stack, "drop", second["id"]) == f"{second['id']} is dropped.\n"
    assert [letter["state"] for letter in listed(stack, table)] == ["replayed", "dropped"]
    assert listed(stack, table, "--state", "open") == []
    hand, space = Hand(stack.url), table.removesuffix(".t")
    hand.land(hand.lease(space))  # what was sent again, so that no other test gets it


def test_equal_reasons_are_counted(stack: Stack, table: str) -> None:
    words = ("reasons", "--table", table, "--format", "json")
    [found] = json.loads(printed(stack, *words))
    assert (found["count"], found["waiting"], found["table"]) == (2, 2, table)
    assert found["reason"].startswith('column "n": … does not fit long')
    assert found["example"] in {letter["id"] for letter in listed(stack, table)}
    printed(stack, "drop", found["example"])
    [left] = json.loads(printed(stack, *words, "--state", "open"))
    assert (left["count"], left["example"] != found["example"]) == (1, True)
    url = f"{stack.url}/lake/v1/main/dead-letters"
    refused = httpx.get(url, params={"group": "reason", "pageToken": left["example"]}, timeout=60)
    assert refused.status_code == 400


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("show", "0"), 1, "calve: Dead letter does not exist: 0"),
        (("list", "--uri", "http://127.0.0.1:1"), 1, "calve: No server answers at http://127.0.0.1:1."),
        (("list", "--state", "lost"), 2, "'lost' is not one of"),
        (("fix", "0", "/dev/null"), 2, "/dev/null is not JSON"),
    ],
)
def test_refusals(stack: Stack, words: tuple[str, ...], code: int, sentence: str) -> None:
    ended = stack.server.command("dead-letters", *words)
    assert (ended.returncode, ended.stdout) == (code, "")
    assert sentence in ended.stderr
    assert ended.stderr.count("\n") == 1
