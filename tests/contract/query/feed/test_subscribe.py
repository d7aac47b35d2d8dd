"""`GET /subscribe`: what a subscriber gets, and where it goes on after it was disconnected."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.query.feed.feed_lake import FeedLake, told


def test_changes_come_as_they_are_published(lake: FeedLake) -> None:
    lake.create("orders")
    with lake.subscribe(tables=lake.name("orders")) as stream:
        first = lake.publish({"orders": [("insert", 1, "new"), ("insert", 2, "new")]})
        events = stream.progress(first)
        assert [event.kind for event in events[-4:]] == ["begin", "change", "change", "progress"]
        assert events[-4].data["number"] == first
        change = events[-3].data
        assert change["table"] == lake.name("orders")
        assert (change["operation"], change["before"], change["after"]) == (
            "insert",
            None,
            {"id": 1, "status": "new"},
        )
        assert (change["number"], change["source"], change["event_id"]) == (first, "pg", "e1")
        assert (events[-1].data["number"], events[-1].data["changes"]) == (first, 2)
        second = lake.publish({"orders": [("update", 1, "paid"), ("delete", 2, None)]})
        update, delete = (event.data for event in stream.progress(second) if event.kind == "change")
        assert (update["before"]["status"], update["after"]["status"]) == ("new", "paid")
        assert (delete["before"], delete["after"]) == ({"id": 2, "status": "new"}, None)


def test_progress_also_when_nothing_matched(lake: FeedLake) -> None:
    lake.create("orders", "items")
    with lake.subscribe(tables=lake.name("items")) as stream:
        number = lake.publish({"orders": [("insert", 1, "new")]})
        events = stream.progress(number)
        assert {event.kind for event in events} == {"progress"}
        assert events[-1].data["changes"] == 0


def test_a_subscription_resumes_after_any_event(lake: FeedLake) -> None:
    lake.create("a", "b")
    begin = lake.head()
    lake.publish({"a": [("insert", n, "x") for n in range(3)], "b": [("insert", n, "y") for n in range(2)]})
    last = lake.publish({"a": [("update", 1, "z")]})
    with lake.subscribe(from_=begin) as stream:
        whole = stream.progress(last)
    assert told(whole) == [
        *(("insert", n, "x") for n in range(3)),
        *(("insert", n, "y") for n in range(2)),
        ("update", 1, "z"),
    ]
    for place, event in enumerate(whole[:-1]):
        with lake.subscribe(last=event.token) as stream:
            assert told(stream.progress(last)) == told(whole[place + 1 :]), event


def test_a_snapshot_comes_first(lake: FeedLake) -> None:
    lake.create("orders")
    number = lake.publish({"orders": [("insert", n, "new") for n in range(5)]})
    with lake.subscribe(snapshot="true") as stream:
        events = stream.until("snapshot-end")
        assert sorted(told(events)) == [("read", n, "new") for n in range(5)]
        assert events[-1].data["number"] == number
        later = lake.publish({"orders": [("delete", 3, None)]})
        assert told(stream.progress(later)) == [("delete", 3, "new")]
    with lake.subscribe(last=events[2].token, snapshot="true") as stream:
        assert told(stream.until("snapshot-end")) == told(events[3:])
        assert told(stream.progress(later)) == [("delete", 3, "new")]


def test_filters(lake: FeedLake) -> None:
    lake.create("orders", "items")
    begin = lake.head()
    lake.publish({"orders": [("insert", 1, "new"), ("insert", 2, "paid")], "items": [("insert", 9, "new")]})
    last = lake.publish({"orders": [("update", 1, "paid"), ("delete", 2, None)]})

    def found(**params: Any) -> list[tuple[str, object, object]]:
        with lake.subscribe(from_=begin, **params) as stream:
            return told(stream.progress(last))

    assert found(tables=f"{lake.namespace}.it*") == [("insert", 9, "new")]
    assert found(operations="delete,update") == [("update", 1, "paid"), ("delete", 2, "paid")]
    assert found(where="status = 'new'") == [
        ("insert", 9, "new"),
        ("insert", 1, "new"),
        ("update", 1, "paid"),  # it leaves the selection
    ]
    assert found(where="id > 1 and id < 5", columns="id") == [("insert", 2, None), ("delete", 2, None)]
    assert found(tables=lake.name("items"), operations="delete") == []


@pytest.mark.parametrize(
    ("params", "code", "message"),
    [
        ({"tables": "orders"}, 400, "namespace.table"),
        ({"tables": "NS.orders", "operations": "upsert"}, 400, "insert, update"),
        ({"tables": "NS.orders", "where": "status ="}, 400, "where"),
        ({"tables": "NS.orders", "where": "nothing = 1"}, 400, "nothing"),
        ({"tables": "NS.orders", "columns": "nothing"}, 400, "nothing"),
        ({"tables": "NS.missing"}, 404, "missing"),
        ({"tables": "NS.plain"}, 409, "plain__changes"),
        ({"tables": "NS.orders", "from": "main:7"}, 400, "token of /cdc"),
        ({"tables": "NS.orders", "from": "soon"}, 400, "moment"),
        ({"tables": "NS.orders", "warehouse": "nowhere"}, 404, "nowhere"),
    ],
)
def test_what_is_refused(lake: FeedLake, params: dict[str, str], code: int, message: str) -> None:
    lake.create("orders")
    lake.create_plain("plain")
    error = lake.refused(**{name: value.replace("NS", lake.namespace) for name, value in params.items()})
    assert error["code"] == code, error
    assert message in error["message"]
