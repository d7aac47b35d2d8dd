"""`lake.subscribe` and `calve tail` on a running server."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess

import pytest

import calve
from calve.errors import Gone, InvalidRequest
from tests.contract.query.feed.feed_lake import FeedLake
from tests.harness import components


def test_batches_of_commits(lake: FeedLake) -> None:
    lake.create("orders")
    begin = lake.head()
    first = lake.publish({"orders": [("insert", 1, "new"), ("insert", 2, "new")]})
    second = lake.publish({"orders": [("update", 1, "paid")]})
    with calve.connect(lake.stack.url) as found:
        batches = found.subscribe(lake.name("orders"), from_=begin)
        one, two = next(batches), next(batches)
        assert [event.after for event in one.events] == [
            {"id": 1, "status": "new"},
            {"id": 2, "status": "new"},
        ]
        assert (one.number, two.number, one.is_complete) == (first, second, True)
        assert (two.events[0].before, two.events[0].after) == (
            {"id": 1, "status": "new"},
            {"id": 1, "status": "paid"},
        )
        again = found.subscribe(lake.name("orders"), from_=one.events[0].token)
        assert [event.after for event in next(again).events] == [{"id": 2, "status": "new"}]
        assert [event.operation for event in next(again).events] == ["update"]
        deletes = found.subscribe([f"{lake.namespace}.*"], "delete", from_=begin, every_commit=True)
        assert next(deletes).events == []


def test_a_snapshot_and_then_changes_with_asyncio(lake: FeedLake) -> None:
    lake.create("orders")
    lake.publish({"orders": [("insert", n, "\u2028new") for n in range(3)]})

    async def run() -> list[tuple[str, object]]:
        found: list[tuple[str, object]] = []
        async with await calve.connect_async(lake.stack.url) as connected:
            batches = connected.subscribe(lake.name("orders"), snapshot=True)
            async for batch in batches:
                found += [(event.operation, event.after) for event in batch.events]
                if not batch.is_snapshot:
                    return found
                await asyncio.to_thread(lake.publish, {"orders": [("insert", 7, "later")]})
        raise AssertionError(found)

    rows = [("read", {"id": n, "status": "\u2028new"}) for n in range(3)]
    assert asyncio.run(run()) == [*rows, ("insert", {"id": 7, "status": "later"})]


def test_errors_are_classes(lake: FeedLake) -> None:
    lake.create("orders")
    with calve.connect(lake.stack.url) as found:
        with pytest.raises(InvalidRequest, match="namespace"):
            next(found.subscribe("orders"))
        token = "WzEsMSwxLDFd"  # of a warehouse that was created in 1970
        with pytest.raises(Gone, match="snapshot=true"):
            next(found.subscribe(lake.name("orders"), from_=token))


def test_tail_prints_changes_until_it_is_interrupted(lake: FeedLake) -> None:
    lake.create("orders")
    begin = lake.head()
    lake.publish({"orders": [("insert", 1, "new")]})
    words = [str(components.calve()), "tail", lake.name("orders"), "--uri", lake.stack.url]
    words += ["--from", str(begin)]
    tail = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert tail.stdout is not None
        change = json.loads(tail.stdout.readline())
        assert (change["operation"], change["after"]) == ("insert", {"id": 1, "status": "new"})
        lake.publish({"orders": [("delete", 1, None)]})
        assert json.loads(tail.stdout.readline())["operation"] == "delete"
    finally:
        os.kill(tail.pid, signal.SIGINT)
        _, problem = tail.communicate(timeout=60)
    assert (tail.returncode, problem) == (0, "")
