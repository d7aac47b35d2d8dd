"""`freshness_ms` and `consistency`: what is acknowledged, and what the answer has of it."""

from __future__ import annotations

import threading
import uuid
from typing import Any

import httpx
import pytest

from tests.clients import pyiceberg_client
from tests.contract.ingest.hand import Hand
from tests.contract.query.lake import QueryLake
from tests.contract.query.writing_hands import WritingHand
from tests.harness.stacks import Stack

SQL = "SELECT count(*) FROM orders"


class Fed(QueryLake):
    """A lake whose table `orders` changes land in."""

    @property
    def snapshot(self) -> int:
        found: int = self.ask(SQL)["snapshots"][f"main.{self.namespace}.orders"]
        return found

    def send(self, number: int) -> str:
        """One change; the token of its acknowledgement."""
        event = {"sequence": 1, "timestamp": 1_700_000_000_000, "operation": "INSERT", "rowId": str(number)}
        event |= {"table": f"{self.namespace}.orders", "after": {"id": number}}
        headers = {"X-Source-Id": uuid.uuid4().hex}
        response = httpx.post(f"{self.stack.url}/cdc", json={"events": [event]}, headers=headers)
        assert response.is_success, response.text
        token: str = response.json()["token"]
        return token


@pytest.fixture
def hand(stack: Stack) -> Hand:
    return WritingHand(stack.url, lambda warehouse: pyiceberg_client.catalog(stack, warehouse))


@pytest.fixture
def fed(stack: Stack, hand: Hand) -> Fed:
    lake = Fed(stack, f"q{uuid.uuid4().hex[:8]}")
    lake.send(1)
    hand.land(hand.lease(lake.namespace))
    return lake


def in_background(ask: Any) -> tuple[threading.Thread, list[Any]]:
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(ask()))
    thread.start()
    return thread, answers


def test_freshness(fed: Fed, hand: Hand) -> None:
    assert fed.ask(SQL)["freshness_ms"] == 0
    fed.send(2)
    assert fed.ask(SQL)["freshness_ms"] > 0
    hand.land(hand.lease(fed.namespace))
    assert fed.ask(SQL)["freshness_ms"] == 0
    assert fed.ask("SELECT 1")["freshness_ms"] == 0


def test_waiting_for_acknowledged_changes(fed: Fed, hand: Hand) -> None:
    before = fed.snapshot
    consistency = f"at_least:{fed.send(2)}"
    thread, answers = in_background(lambda: fed.ask(SQL, consistency=consistency))
    hand.land(hand.lease(fed.namespace))
    thread.join(60)
    (answer,) = answers
    assert answer["freshness_ms"] == 0
    assert answer["snapshots"] != {f"main.{fed.namespace}.orders": before}
    assert fed.ask(SQL, consistency=consistency)["freshness_ms"] == 0, "no more to wait for"


def test_the_moment_of_a_token(fed: Fed, hand: Hand) -> None:
    token = fed.send(2)
    assert fed.refused(SQL, as_of=token, timeout_s=1)["code"] == 504
    hand.land(hand.lease(fed.namespace))
    answer = fed.ask(SQL, as_of=token)
    assert (answer["freshness_ms"], answer["snapshots"]) == (0, fed.ask(SQL)["snapshots"])
    assert fed.refused(SQL, as_of="other:1")["code"] == 400


def test_waiting_has_an_end(fed: Fed, hand: Hand) -> None:
    token = fed.send(2)
    for sql, consistency in ((f"{SQL}__changes", "fresh"), (SQL, f"at_least:{token}")):
        error = fed.refused(sql, consistency=consistency, timeout_s=1)
        assert error["code"] == 504
        assert "/status" in error["message"]
    assert fed.ask(SQL)["freshness_ms"] > 0, "committed does not wait"
    hand.land(hand.lease(fed.namespace))


def test_changes_of_other_tables_are_not_waited_for(fed: Fed, hand: Hand) -> None:
    hand.post(f"{fed.namespace}.other", {"id": 1})
    assert fed.ask(SQL, consistency="fresh")["freshness_ms"] == 0
    hand.land(hand.lease(fed.namespace))


def test_wrong_tokens(fed: Fed) -> None:
    for consistency in ("at_least:", "at_least:main", "at_least:main:x", "at_least:main:999999999"):
        assert fed.refused(SQL, consistency=consistency)["code"] == 400
    assert fed.refused(SQL, consistency="fresh", as_of=1)["code"] == 400
