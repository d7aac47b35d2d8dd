"""Subscriptions over `/ws`, with the tokens of `GET /subscribe`."""

from __future__ import annotations

import json
from typing import Any

from websockets.sync.client import ClientConnection, connect

from tests.contract.query.feed.feed_lake import FeedLake


def received(socket: ClientConnection, kind: str, number: int | None = None) -> list[dict[str, Any]]:
    """Messages up to the first of this kind, or up to the one with this number or a later one."""
    found: list[dict[str, Any]] = []
    while True:
        found.append(json.loads(socket.recv(timeout=60)))
        is_late = number is None or found[-1].get("data", {}).get("number", -1) >= number
        if found[-1]["type"] == kind and is_late:
            return found


def test_changes_over_a_websocket(lake: FeedLake) -> None:
    lake.create("orders")
    lake.publish({"orders": [("insert", 1, "new")]})
    with connect(lake.stack.url.replace("http", "ws") + "/ws") as socket:
        asked = {"type": "subscribe", "id": "a", "tables": [lake.name("orders")], "snapshot": True}
        socket.send(json.dumps(asked))
        row, end = received(socket, "snapshot-end")
        assert (row["type"], row["subscription"], row["data"]["after"]) == (
            "change",
            "a",
            {"id": 1, "status": "new"},
        )
        number = lake.publish({"orders": [("update", 1, "paid"), ("insert", 2, "new")]})
        messages = received(socket, "progress", number)
        changes = [one for one in messages if one["type"] == "change"]
        assert [one["data"]["operation"] for one in changes] == ["update", "insert"]
        socket.send(json.dumps({"type": "unsubscribe", "id": "a"}))
        received(socket, "unsubscribed")
        # The token of a message goes on in another protocol, and here again.
        with lake.subscribe(last=changes[0]["token"]) as stream:
            assert [one.data["after"]["id"] for one in stream.progress(number) if one.kind == "change"] == [2]
        socket.send(json.dumps({**asked, "id": "b", "from": end["token"]}))
        again = received(socket, "progress", number)
        assert [one["data"] for one in again if one["type"] == "change"] == [one["data"] for one in changes]


def test_what_is_refused_does_not_end_the_connection(lake: FeedLake) -> None:
    lake.create("orders")
    with connect(lake.stack.url.replace("http", "ws") + "/ws") as socket:
        for wrong, words in (
            ({"tables": ["orders"]}, "namespace.table"),
            ({"tables": 7}, "tables"),
            ({"where": 7}, "where"),
            ({"snapshot": "yes"}, "snapshot"),
            ({"from": "WzEsMSwxLDFd"}, "snapshot=true"),
        ):
            socket.send(json.dumps({"type": "subscribe", "id": "x", **wrong}))
            [error] = received(socket, "error")
            assert error["subscription"] == "x"
            assert words in error["data"]["message"]
        socket.send("ping")
        assert socket.recv(timeout=60) == "pong"
