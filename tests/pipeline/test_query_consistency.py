"""Queries during ingest: at each level of consistency the answer is a state of the source that is new enough.

The source has one table. Change number i writes i to the row `i % KEYS`, and every fifth change of a row
deletes it. So the rows after each number of changes are known, and an answer shows how many it has.
"""

from __future__ import annotations

import itertools
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

import calve
from tests.pipeline.conftest import Pipeline

KEYS = 199
CHANGES_A_REQUEST = 50
LEVELS = ("committed", "fresh", "at_least")

Rows = dict[int, int]


def change(number: int) -> dict[str, Any]:
    row, turn = number % KEYS, number // KEYS
    if turn % 5 == 4:
        return {"operation": "delete", "before": {"id": row}}
    return {"operation": "insert" if turn % 5 == 0 else "update", "after": {"id": row, "number": number}}


def model(count: int) -> Rows:
    """The rows after the changes 0 to count - 1."""
    last = range(max(0, count - KEYS), count)
    return {number % KEYS: number for number in last if (number // KEYS) % 5 != 4}


def shown_changes(rows: Rows, least: int) -> int:
    """How many changes an answer has, at least `least`. AssertionError if it is no state of the source."""
    first = max(rows.values(), default=-1) + 1
    for count in range(max(first, least), max(first, least) + 2 * KEYS):
        if model(count) == rows:
            return count
    # Deletes may follow the largest number, so an older state has no larger count than this.
    raise AssertionError(f"no state of the source from {least} changes on has these rows: {rows}")


@dataclass
class Source:
    """Sends changes at a rate, and knows what is acknowledged."""

    lake: calve.Lake
    table: str
    rate_per_s: float
    sent: int = 0
    acknowledged: int = 0
    token: str = ""
    tokens: list[tuple[int, str]] = field(default_factory=list)  # how many changes a token stands for

    def run(self, until_s: float, stopped: threading.Event) -> None:
        began_s = time.monotonic()
        while time.monotonic() < until_s and not stopped.is_set():
            count = min(CHANGES_A_REQUEST, int((time.monotonic() - began_s) * self.rate_per_s) - self.sent)
            if count <= 0:
                time.sleep(0.005)
                continue
            changes = [change(number) for number in range(self.sent, self.sent + count)]
            self.sent += count
            written = self.lake.write(self.table, changes, key="id")
            self.tokens = [*self.tokens[-20:], (self.sent, written.token)]
            self.acknowledged = self.sent


def check(pipeline: Pipeline, seconds: float, rate_per_s: float) -> tuple[dict[str, int], int]:
    """Run it. Returns how many queries there were at each level, and how many changes were sent."""
    table = f"c{uuid.uuid4().hex[:8]}.rows"
    stopped = threading.Event()
    with calve.connect(pipeline.url) as lake, ThreadPoolExecutor(4) as threads:
        lake.write(table, [change(number) for number in range(KEYS)], key="id", wait="commit", timeout_s=120)
        source = Source(lake, table, rate_per_s, sent=KEYS, acknowledged=KEYS)
        source.tokens = [(KEYS, lake.write(table, [change(KEYS)], key="id").token)]
        source.sent = source.acknowledged = KEYS + 1
        until_s = time.monotonic() + seconds
        asked = {level: threads.submit(_ask, pipeline, source, level, until_s, stopped) for level in LEVELS}
        try:
            source.run(until_s, stopped)
        finally:
            counts = {level: one.result() for level, one in asked.items()}
        assert _rows(pipeline.url, table, "fresh")[0] == model(source.sent)
    return counts, source.sent


def _ask(pipeline: Pipeline, source: Source, level: str, until_s: float, stopped: threading.Event) -> int:
    """Queries of one level in a loop. A difference stops everybody."""
    chosen = random.Random(level)
    seen = KEYS
    try:
        for number in itertools.count():
            if time.monotonic() >= until_s or stopped.is_set():
                return number
            least, consistency = _wanted(source, level, chosen)
            rows, as_of = _rows(pipeline.url, source.table, consistency)
            sent = source.sent
            shown = shown_changes(rows, max(least, seen))
            assert shown <= sent, f"{shown} changes are shown, and {sent} were sent"
            seen = shown  # no answer is older than one before
            if number % 10 == 0 and as_of is not None:
                assert _rows(pipeline.url, source.table, "committed", as_of=as_of)[0] == rows
    finally:
        stopped.set()
    raise AssertionError("unreachable")


def _wanted(source: Source, level: str, chosen: random.Random) -> tuple[int, str]:
    """How many changes an answer must have, and the level to ask for."""
    if level == "committed":
        return 0, level
    if level == "fresh":
        return source.acknowledged, level
    count, token = chosen.choice(source.tokens)
    return count, f"at_least:{token}"


def _rows(url: str, table: str, consistency: str, **more: Any) -> tuple[Rows, int | None]:
    """The rows, and the number of the warehouse that has them; None if unpublished changes were added."""
    body = {"sql": f"SELECT id, number FROM {table}", "consistency": consistency, "format": "compact"} | more
    response = httpx.post(f"{url}/query", json=body, timeout=120)
    assert response.status_code == 200, response.text
    answer = response.json()
    rows = [(int(key), int(number)) for key, number in answer["rows"]]
    assert len(dict(rows)) == len(rows), "a key is there twice"
    is_published = answer.get("fresh_by") != "journal"
    return dict(rows), int(answer["as_of"]["number"]) if is_published else None


def test_the_model() -> None:
    """The states differ, so that an answer shows how many changes it has."""
    rows: Rows = {}
    apply: dict[str, Callable[[dict[str, Any]], object]] = {
        "delete": lambda one: rows.pop(one["before"]["id"]),
        "insert": lambda one: rows.__setitem__(one["after"]["id"], one["after"]["number"]),
        "update": lambda one: rows.__setitem__(one["after"]["id"], one["after"]["number"]),
    }
    for number in range(12 * KEYS):
        assert model(number) == rows, number
        one = change(number)
        assert (one["operation"] == "insert") == (number % KEYS not in rows)
        apply[str(one["operation"])](one)


def test_each_level_of_consistency(pipeline: Pipeline) -> None:
    counts, _ = check(pipeline, seconds=8, rate_per_s=200)
    assert all(counts.values()), counts


@pytest.mark.proof
@pytest.mark.timeout(1800)
def test_ten_minutes_of_queries_during_ingest(pipeline: Pipeline) -> None:
    seconds = float(os.environ.get("CALVE_PROOF_SECONDS", "600"))
    counts, sent = check(pipeline, seconds=seconds, rate_per_s=1000)
    rate = f"{sent:,} changes in {seconds:.0f} s"
    print(f"{rate}: no answer differs from the model; queries at each level: {counts}")
    assert all(count > 10 for count in counts.values()), counts
