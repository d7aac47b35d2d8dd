"""`GET /lake/v1/{warehouse}/changes`: the same changes and tokens in pages."""

from __future__ import annotations

import threading

import pytest

from tests.contract.query.feed.feed_lake import FeedLake, told


@pytest.mark.parametrize("limit", [1, 2, 7])
def test_pages_have_every_change_once(lake: FeedLake, limit: int) -> None:
    lake.create("a", "b")
    begin = lake.head()
    lake.publish({"a": [("insert", n, "x") for n in range(3)], "b": [("insert", n, "y") for n in range(2)]})
    last = lake.publish({"a": [("update", 1, "z")]})
    with lake.subscribe(from_=begin) as stream:
        whole = [event.data for event in stream.progress(last) if event.kind == "change"]
    found, page = [], lake.poll(after=begin, limit=limit)
    while page["changes"] or page["has-more"]:
        assert len(page["changes"]) <= limit
        found += page["changes"]
        page = lake.poll(after=page["next"], limit=limit)
    assert found == whole
    assert page["number"] == last


def test_a_snapshot_in_pages(lake: FeedLake) -> None:
    lake.create("orders")
    number = lake.publish({"orders": [("insert", n, "new") for n in range(5)]})
    page = lake.poll(snapshot="true", limit=2)
    found = page["changes"]
    while page["snapshot-end"] is None:
        page = lake.poll(after=page["next"], limit=2)
        found += page["changes"]
    assert sorted(change["after"]["id"] for change in found) == list(range(5))
    assert {change["operation"] for change in found} == {"read"}
    assert page["snapshot-end"] == number


def test_a_poll_waits_for_a_change(lake: FeedLake) -> None:
    lake.create("orders")
    token = lake.poll()["next"]
    assert lake.poll(after=token)["changes"] == []
    publishing = threading.Timer(0.5, lake.publish, ({"orders": [("insert", 1, "new")]},))
    publishing.start()
    page = lake.poll(after=token, **{"wait-s": 30})
    publishing.join()
    assert [change["after"]["id"] for change in page["changes"]] == [1]
    with lake.subscribe(last=page["next"]) as stream:
        assert told([stream.next()]) == []
