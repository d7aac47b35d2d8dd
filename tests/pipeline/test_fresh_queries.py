"""Fresh queries while transactions over two tables stream in and are published.

The row of `counter` has the number of the last transaction. Each transaction also changes `rows`: inserts,
whole and partial updates, deletes, key changes, swaps of keys. So an answer shows how many transactions it
has, and its other rows must be exactly those of the model at that number.
"""

from __future__ import annotations

import collections
import os
import random
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from tests.pipeline.conftest import Pipeline
from tests.pipeline.producer import Event, Producer, flush

KEYS = range(1, 30)
DEADLINE_S = 240
SQL = "SELECT c.n, c.kept, r.id, r.a, r.b FROM {0}.counter AS c LEFT JOIN {0}.rows AS r ON true"

Make = Callable[[Pipeline, str], Producer]
Row = dict[str, Any]


@dataclass
class Source:
    """Sends transactions, and knows the rows after each, and what is acknowledged."""

    producer: Producer
    space: str
    chosen: random.Random
    states: list[dict[int, Row]] = field(default_factory=list)
    acknowledged: int = 0

    def begin(self) -> None:
        """Transaction 0: every table and column exists."""
        row = {"id": 1, "a": "a0", "b": "b0"}
        self.states.append({1: row})
        counter = self.producer.event("INSERT", f"{self.space}.counter", None, {"id": 1, "n": 0, "kept": "k"})
        self.producer.send([counter, self.producer.event("INSERT", f"{self.space}.rows", None, row)])

    def send(self) -> None:
        """The next transaction, some of them in two requests."""
        number = len(self.states)
        state = dict(self.states[-1])
        table, name = f"{self.space}.rows", {"transactionId": f"t{number}"}
        events = [
            self.producer.event(kind, table, before, after, **name)
            for kind, before, after in self._changes(number, state)
        ]
        self.states.append(state)
        after = {"id": 1, "n": number}
        last = self.producer.event(
            "UPDATE", f"{self.space}.counter", {"id": 1}, after, **name, transactionEnd=True
        )
        if self.chosen.randint(0, 24) == 0:
            self.producer.send(events)
            self.producer.send([last])
        else:
            self.producer.send([*events, last])
        self.acknowledged = number

    def _changes(self, number: int, state: dict[int, Row]) -> list[tuple[str, Row | None, Row | None]]:
        """Change the state. Returns operation, row before and row after of each change."""
        key, value = self.chosen.choice(KEYS), f"v{number}"
        old = state.get(key)
        if old is None:
            state[key] = {"id": key, "a": value, "b": value}
            return [("INSERT", None, state[key])]
        kind = self.chosen.randint(0, 39)
        other = self.chosen.choice(KEYS)
        if kind == 0 and other in state and other != key:
            state[key], state[other] = {**state[other], "id": key}, {**old, "id": other}
            return [("UPDATE", {"id": key}, state[other]), ("UPDATE", {"id": other}, state[key])]
        if kind < 10 and other not in state:
            del state[key]
            state[other] = {**old, "id": other, "a": value}
            return [("UPDATE", {"id": key}, {"id": other, "a": value})]
        if kind < 18:
            del state[key]
            return [("DELETE", {"id": key}, None)]
        if kind < 30:
            state[key] = {**old, "b": value}
            return [("UPDATE", {"id": key}, {"id": key, "b": value})]
        state[key] = {"id": key, "a": None, "b": value}
        return [("UPDATE", {"id": key}, state[key])]


@dataclass
class Answers:
    """How many answers there were, by where their changes came from, and the numbers that were read."""

    counts: collections.Counter[str] = field(default_factory=collections.Counter)
    numbers: set[int] = field(default_factory=set)


def check(
    pipeline: Pipeline, produced: Make, answers: Answers, pause_s: float, is_enough: Callable[[], bool]
) -> None:
    """Send transactions and ask until it is enough."""
    space = f"n{uuid.uuid4().hex[:8]}"
    source = Source(produced(pipeline, f"s-{space}"), space, random.Random(space))
    source.begin()
    flush(pipeline.url)
    stopped = threading.Event()
    with ThreadPoolExecutor(2) as threads:
        asked = [threads.submit(_ask, pipeline.url, source, answers, stopped) for _ in range(2)]
        try:
            while not is_enough() and not stopped.is_set():
                source.send()
                time.sleep(pause_s)
        finally:
            stopped.set()
            for one in asked:
                one.result()
    number, _, _ = _answer(pipeline.url, source)
    assert number == len(source.states) - 1


def _ask(url: str, source: Source, answers: Answers, stopped: threading.Event) -> None:
    """Queries in a loop. A difference stops everybody."""
    newest = 0
    try:
        while not stopped.is_set():
            least = max(newest, source.acknowledged)
            newest, by, number = _answer(url, source)
            assert newest >= least, f"{newest} transactions are shown, {least} were acknowledged"
            answers.counts[by] += 1
            answers.numbers.add(number)
    finally:
        stopped.set()


def _answer(url: str, source: Source) -> tuple[int, str, int]:
    """Return how many transactions a fresh query shows, where they came from, and the number it read."""
    body = {"sql": SQL.format(source.space), "consistency": "fresh", "format": "compact", "timeout_s": 50}
    response = httpx.post(f"{url}/query", json=body, timeout=120)
    assert response.status_code == 200, response.text
    answer = response.json()
    count, kept = answer["rows"][0][:2]
    assert kept == "k"
    assert {row[0] for row in answer["rows"]} == {count}, "one counter"
    rows = [dict(zip(("id", "a", "b"), row[2:], strict=True)) for row in answer["rows"] if row[2] is not None]
    assert len({row["id"] for row in rows}) == len(rows), "a key is there twice"
    assert {row["id"]: row for row in rows} == source.states[count], (count, answer["fresh_by"])
    if answer["fresh_by"] != "waited":  # more may be acknowledged while it waits
        assert answer["freshness_ms"] == 0
    return int(count), answer["fresh_by"], answer["as_of"]["number"]


def test_each_fresh_query_is_a_state_of_the_source(pipeline: Pipeline, produced: Make) -> None:
    answers, until_s = Answers(), time.monotonic() + DEADLINE_S

    def is_enough() -> bool:
        assert time.monotonic() < until_s, answers
        return len(answers.numbers) >= 4 and answers.counts["journal"] >= 30

    check(pipeline, produced, answers, 0.03, is_enough)


@pytest.mark.proof
@pytest.mark.timeout(1800)
def test_minutes_of_fresh_queries_during_ingest(pipeline: Pipeline, produced: Make) -> None:
    seconds = float(os.environ.get("CALVE_PROOF_SECONDS", "300"))
    answers, until_s = Answers(), time.monotonic() + seconds
    check(pipeline, produced, answers, 0.01, lambda: time.monotonic() >= until_s)
    print(
        f"{seconds:.0f} s: no answer differs from the model; {answers.counts}, {len(answers.numbers)} numbers"
    )
    assert answers.counts["journal"] > 100, answers


def test_a_paused_table(pipeline: Pipeline, produced: Make) -> None:
    """While a table is paused nothing is published; its changes are acknowledged, and fresh queries have
    them.
    """
    space = f"n{uuid.uuid4().hex[:8]}"
    shop, table = produced(pipeline, f"s-{space}"), f"{space}.orders"

    def event(kind: str, before: Row | None, after: Row | None) -> Event:
        return shop.event(kind, table, before, after)

    shop.send([event("INSERT", None, {"id": key, "name": f"n{key}", "amount": key}) for key in range(100)])
    flush(pipeline.url)
    url = f"{pipeline.url}/lake/v1/main/namespaces/{space}/tables/orders/ingest"
    httpx.post(f"{url}/pause").raise_for_status()
    shop.send([event("UPDATE", {"id": key}, {"id": key, "amount": 0}) for key in range(50)])
    shop.send([event("DELETE", {"id": key}, None) for key in range(90, 100)])
    shop.send([event("UPDATE", {"id": 50}, {"id": 1000})])
    body = {"sql": f"SELECT count(*), sum(amount), max(id), min(name) FROM {table}", "format": "compact"}
    fresh = httpx.post(f"{pipeline.url}/query", json={**body, "consistency": "fresh"}, timeout=120)
    assert fresh.json()["fresh_by"] == "journal", fresh.text
    expected = [[90, sum(range(50, 90)), 1000, "n0"]]
    assert _numbers(fresh.json()["rows"]) == expected
    assert _numbers(httpx.post(f"{pipeline.url}/query", json=body).json()["rows"]) != expected
    httpx.post(f"{url}/resume").raise_for_status()
    flush(pipeline.url)
    published = httpx.post(f"{pipeline.url}/query", json=body).json()
    assert _numbers(published["rows"]) == expected


def _numbers(rows: list[list[Any]]) -> list[list[Any]]:
    """Sums are text, because they may be larger than JSON's numbers."""
    return [[int(value) if str(value).isdigit() else value for value in row] for row in rows]
