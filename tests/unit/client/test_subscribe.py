"""`lake.subscribe`: batches, and where it goes on after a failure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from calve.client.subscriptions import Batch, Subscriber
from calve.errors import Gone, Unauthorized
from tests.unit.client.server import FakeServer, failed


def event(kind: str, token: str, **data: Any) -> bytes:
    return f"id: {token}\nevent: {kind}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


def change(token: str, id_: int, number: int = 7, operation: str = "insert") -> bytes:
    return event(
        "change",
        token,
        table="shop.orders",
        operation=operation,
        before=None,
        after={"id": id_, "text": "a\u2028b"},
        number=number,
    )


def stream(*events: bytes) -> httpx.Response:
    return httpx.Response(200, content=b"".join(events), headers={"content-type": "text/event-stream"})


def ids(batch: Batch) -> list[int]:
    return [one.after["id"] for one in batch.events if one.after is not None]


def asked(server: FakeServer) -> list[str | None]:
    """The tokens of the requests, one after the other."""
    return [
        request.headers.get("last-event-id")
        for request in server.requests
        if request.url.path == "/subscribe"
    ]


def test_a_batch_goes_on_after_the_last_change_that_was_received() -> None:
    server = FakeServer(
        {
            "GET /subscribe": [
                stream(
                    event("progress", "t0", number=6),
                    change("t1", 1),
                    event("progress", "t2", number=7),
                    change("t3", 2, 8),
                    change("lost", 3, 8)[:-1],
                ),
                httpx.ReadError("cut"),
                failed(503, "restarting"),
                stream(b": heartbeat\n\n", change("t4", 3, 8)),
                stream(event("progress", "t5", number=8)),
            ]
        }
    )
    batches = server.connect().subscribe("shop.orders", from_=5)
    first, second = next(batches), next(batches)
    assert (ids(first), first.token, first.number, first.is_complete) == ([1], "t2", 7, True)
    assert (ids(second), second.token, second.is_complete) == ([2, 3], "t5", True)
    assert asked(server) == [None, "t3", "t3", "t3", "t4"]


def test_a_snapshot_ends_though_no_connection_lasts_for_two_rows() -> None:
    rows = [stream(change(f"s{n}", n, operation="read")) for n in range(1, 6)]
    server = FakeServer({"GET /subscribe": [*rows, stream(event("snapshot-end", "t", number=7))]})
    batch = next(server.connect().subscribe("shop.orders", snapshot=True))
    assert (ids(batch), batch.is_snapshot, batch.is_complete) == ([1, 2, 3, 4, 5], True, True)
    assert asked(server) == [None, "s1", "s2", "s3", "s4", "s5"]


def test_tables_to_read_again_are_told_once_after_a_failure() -> None:
    reset = event("must-refetch", "t0", table="shop.items", number=7, reason="x")
    server = FakeServer(
        {
            "GET /subscribe": [
                stream(event("progress", "t0", number=6), reset),
                stream(reset, change("t1", 1)),
                stream(event("progress", "t2", number=7)),
            ]
        }
    )
    batch = next(server.connect().subscribe())
    assert (ids(batch), list(batch.must_refetch)) == ([1], ["shop.items"])
    assert asked(server) == [None, "t0", "t1"]


@pytest.mark.parametrize(
    ("last", "error"),
    [
        (event("error", "t", message="revoked", type="NotAuthorizedException", code=401), Unauthorized),
        (event("must-refetch", "t", message="too old", type="MustRefetchException", code=410), Gone),
    ],
)
def test_an_error_that_another_connection_does_not_mend_is_raised(
    last: bytes, error: type[Exception]
) -> None:
    server = FakeServer({"GET /subscribe": [stream(event("progress", "t0", number=6), last)]})
    with pytest.raises(error):
        next(server.connect().subscribe())


def test_a_slow_consumer_connects_again() -> None:
    server = FakeServer(
        {
            "GET /subscribe": [
                stream(
                    change("t1", 1),
                    event("progress", "t2", number=7),
                    event("slow-consumer", "t2", message="slow"),
                ),
                stream(change("t3", 2, 8), event("progress", "t4", number=8)),
            ]
        }
    )
    batches = server.connect().subscribe()
    assert [ids(next(batches)), ids(next(batches))] == [[1], [2]]


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    yield from (data[start : start + size] for start in range(0, len(data), size))


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_events_may_be_cut_anywhere(size: int) -> None:
    data = (
        b"retry: 1000\n\n"
        + change("t1", 1)
        + b": heartbeat\r\n\r\n"
        + event("must-refetch", "t1", table="a.b", number=7, reason="x")
    )
    data += event("progress", "t2", number=7)
    subscriber = Subscriber({})
    [batch] = [found for piece in pieces(data, size) for found in subscriber.received(piece)]
    assert ids(batch) == [1]
    assert batch.events[0].after == {"id": 1, "text": "a\u2028b"}
    assert list(batch.must_refetch) == ["a.b"]


def test_empty_commits_move_the_token_and_are_shown_on_demand() -> None:
    data = event("progress", "t1", number=7)
    quiet, loud = Subscriber({}), Subscriber({}, is_every_commit=True)
    assert list(quiet.received(data)) == []
    assert quiet.token == "t1"
    assert [batch.number for batch in loud.received(data)] == [7]


def test_rows_of_a_snapshot_end_with_a_complete_batch() -> None:
    subscriber = Subscriber({})
    data = change("s1", 1, operation="read") + event("snapshot-end", "t", number=7)
    [batch] = subscriber.received(data)
    assert (batch.is_snapshot, batch.is_complete, batch.token) == (True, True, "t")
    [empty] = subscriber.received(event("snapshot-end", "t", number=7))
    assert (empty.is_snapshot, list(empty.events)) == (True, [])
