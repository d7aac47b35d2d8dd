"""Jobs of verification as a worker sees them, without Spark: what is due, and what is written down."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.contract.ingest.hand import Hand, expire
from tests.harness.stacks import STACKS, Stack, Stacks

TABLE = "main/namespaces/checked/tables/orders"
EQUAL = {"rows": 2, "expected-rows": 2, "differences": {}, "ms": 5}


@pytest.fixture(scope="module", params=STACKS)
def stack(
    request: pytest.FixtureRequest, stacks: Stacks, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    """A server that verifies all the time."""
    settings = {"CALVE_VERIFY_INTERVAL_S": "0.001", "CALVE_MAINTENANCE": "false"}
    with stacks.started(request.param, tmp_path_factory.mktemp("verification"), settings) as started:
        yield started


def lease(hand: Hand, *, timeout_s: float = 60) -> dict[str, Any]:
    """The next job that is no batch."""
    until_s = time.monotonic() + timeout_s
    while time.monotonic() < until_s:
        answer = leased(hand)
        if answer.status_code == 200:
            job: dict[str, Any] = answer.json()
            return job
    raise AssertionError(f"no job within {timeout_s} s")


def leased(hand: Hand) -> httpx.Response:
    body = {"worker": hand.name, "wait-s": 1, "about": {"maintenance": "only"}}
    return hand.rest.lake("POST", "jobs/lease", json=body)


def complete(hand: Hand, job: dict[str, Any], facts: dict[str, Any], epoch: int = 1) -> int:
    body = {"epoch": epoch, "facts": facts}
    return hand.rest.lake("POST", f"jobs/{job['id']}/complete", json=body).status_code


def shown(hand: Hand) -> dict[str, Any]:
    found: dict[str, Any] = hand.rest.lake("GET", f"{TABLE}/verification").json()
    return found


def test_a_table_is_verified_regularly_and_on_request(stack: Stack) -> None:
    hand = Hand(stack.url)
    hand.post("checked.orders", {"id": 1, "n": 1}, {"id": 2, "n": 2})
    number = hand.land(hand.lease("checked"))
    assert shown(hand)["state"] == "unverified"

    job = lease(hand)  # the server verifies by itself
    assert (job["kind"], job["name"], job["changes"], job["key"]) == (
        "verify", "orders", "orders__changes", ["id"],
    )  # fmt: skip
    assert job["number"] >= number
    assert shown(hand)["state"] == "running"
    assert complete(hand, job, EQUAL, epoch=2) == 409
    assert complete(hand, job, EQUAL) == 204
    assert complete(hand, job, EQUAL) == 204  # a repeat, whose answer was lost
    found = shown(hand)
    assert found["state"] == "equal"
    through = found["verified-through"]
    assert through["number"] == job["number"]
    assert list(through["positions"].values()) == [f"{2:016x}"]

    hand.rest.lake("POST", f"{TABLE}/verify")
    job = lease(hand)
    expire(stack, job)  # the worker is gone, and any other that asks for a batch frees the table
    hand.ask()
    again = lease(hand)
    assert again["id"] != job["id"]
    assert complete(hand, job, EQUAL) in (404, 409)
    assert complete(hand, again, {"error": "no memory"}) == 204
    found = shown(hand)
    assert (found["state"], found["reason"], found["verified-through"]) == ("failed", "no memory", through)

    hand.rest.lake("POST", f"{TABLE}/verify")
    keys = [{"kind": "changed", "key": {"id": 1}, "columns": ["n"]}]
    assert complete(hand, lease(hand), {"differences": {"changed": 1}, "keys": keys}) == 204
    found = shown(hand)
    assert (found["state"], found["keys"], found["verified-through"]) == ("differs", keys, through)
    assert found["mend"]["request"] == f"POST /lake/v1/{TABLE}/rebuild"


def test_a_table_without_changes_is_not_verifiable(stack: Stack) -> None:
    hand = Hand(stack.url)
    space = hand.rest.fresh_namespace()
    hand.rest.create(space, "items")
    path = f"main/namespaces/{space}/tables/items/verification"
    assert hand.rest.lake("POST", f"main/namespaces/{space}/tables/items/verify").status_code == 202
    until_s = time.monotonic() + 60
    while hand.rest.lake("GET", path).json()["state"] == "requested":
        assert time.monotonic() < until_s
        leased(hand)
    found = hand.rest.lake("GET", path).json()
    assert (found["state"], found["reason"]) == ("not-verifiable", "nothing has landed in the table")


def test_posted_checksums_name_columns_that_exist(stack: Stack) -> None:
    hand = Hand(stack.url)
    space = hand.rest.fresh_namespace()
    hand.rest.create(space, "items")
    body = {"source": "s", "position": 1, "columns": ["none"], "count": 0}
    answer = hand.rest.lake("POST", f"main/namespaces/{space}/tables/items/verification", json=body)
    assert answer.status_code == 400
    assert 'no column "none"' in answer.json()["error"]["message"]
