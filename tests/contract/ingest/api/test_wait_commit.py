"""wait=commit, tokens and flush: from durable to visible."""

from __future__ import annotations

import threading
from typing import Any

import httpx

from tests.contract.ingest.api.api_server import ApiServer, event


def later(server: ApiServer, warehouse: str) -> threading.Thread:
    """Lands everything as soon as something is pending."""

    def run() -> None:
        while not server.journal.pending(warehouse):
            threading.Event().wait(0.01)
        server.landing.land(warehouse)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_the_answer_waits_until_it_is_visible(
    server: ApiServer, client: httpx.Client, warehouse: str
) -> None:
    landing = later(server, warehouse)
    answer = client.post("/cdc?wait=commit", json=[event(1), event(2, table="shop.items")])
    landing.join()
    assert answer.status_code == 200
    told = answer.json()
    assert told["committed"] is True
    assert [snapshot["table"] for snapshot in told["snapshots"]] == ["shop.items", "shop.orders"]
    first = told["snapshots"][0]
    assert set(first) == {
        "table",
        "number",
        "mirror-snapshot-id",
        "changes-snapshot-id",
        "commit-timestamp",
    }
    assert first["number"] > 0


def test_not_yet_visible_is_safe_all_the_same(
    server: ApiServer, client: httpx.Client, warehouse: str
) -> None:
    answer = client.post("/cdc?ack=commit&timeout_s=0.05", json=[event(1)])
    assert answer.status_code == 202
    assert (answer.json()["committed"], answer.json()["snapshots"]) == (False, [])
    assert server.journal.pending(warehouse)[0].events == 1


def test_a_repeat_waits_for_what_came_before(server: ApiServer, client: httpx.Client, warehouse: str) -> None:
    client.post("/cdc", json=[event(1)])
    again = client.post("/cdc?wait=commit&timeout_s=0.05", json=[event(1)])
    assert (again.status_code, again.json()["isDuplicate"], again.json()["committed"]) == (202, True, False)
    server.landing.land(warehouse)
    again = client.post("/cdc?wait=commit&timeout_s=30", json=[event(1)])
    assert (again.status_code, again.json()["committed"]) == (200, True)
    assert [snapshot["table"] for snapshot in again.json()["snapshots"]] == ["shop.orders"]


def test_a_dead_letter_lands_too(server: ApiServer, client: httpx.Client, warehouse: str) -> None:
    landing = later(server, warehouse)
    answer = client.post("/cdc?wait=commit", json=[event(1), event(2, operation="NONE")])
    landing.join()
    assert (answer.status_code, answer.json()["deadLettered"]) == (200, 1)


def asked(client: httpx.Client, warehouse: str, query: str) -> Any:
    return client.get(f"/lake/v1/{warehouse}/landed?{query}")


def test_whether_a_token_is_visible(server: ApiServer, client: httpx.Client, warehouse: str) -> None:
    token = client.post("/cdc", json=[event(1)]).json()["token"]
    assert asked(client, warehouse, f"token={token}").json() == {
        "token": token,
        "visible": False,
        "waiting": ["shop.orders"],
    }
    assert asked(client, warehouse, f"token={token}&wait-s=0.05").json()["visible"] is False
    landing = later(server, warehouse)
    assert asked(client, warehouse, f"token={token}&wait-s=30").json()["visible"] is True
    landing.join()
    second = client.post("/cdc", json=[event(2)]).json()["token"]
    assert asked(client, warehouse, f"token={token}").json()["visible"] is True
    assert asked(client, warehouse, f"token={second}").json()["visible"] is False


def test_a_token_that_is_none(client: httpx.Client, warehouse: str) -> None:
    for wrong in ("main:1", "x", f"{warehouse}:x"):
        assert asked(client, warehouse, f"token={wrong}").status_code == 400
    assert asked(client, "elsewhere", "token=elsewhere:1").status_code == 404


def test_flush_waits_and_returns_what_was_committed(
    server: ApiServer, client: httpx.Client, warehouse: str
) -> None:
    client.post("/cdc", json=[event(1), event(2, table="shop.items")])
    server.landing.lands_on_flush = True
    try:
        told = client.post("/flush", json={}).json()
    finally:
        server.landing.lands_on_flush = False
    assert (told["success"], told["committed"], told["eventsFlushed"], told["batchesFlushed"]) == (
        True,
        True,
        2,
        1,
    )
    assert told["paths"] == ["shop.items", "shop.orders"]
    assert len(told["snapshots"]) == 2
    assert told["bytesWritten"] > 0
    assert {"durationMs", "usedFallback"} <= set(told)


def test_flush_of_nothing(client: httpx.Client) -> None:
    told = client.post("/flush").json()
    assert (told["success"], told["eventsFlushed"], told["snapshots"]) == (True, 0, [])


def test_flush_of_one_table_without_waiting(server: ApiServer, client: httpx.Client) -> None:
    client.post("/cdc", json=[event(1)])
    told = client.post("/flush", json={"tables": ["shop.orders", ["a.b", "c"]], "wait": False}).json()
    assert (told["success"], told["committed"]) == (True, False)
    assert server.landing.flushes[-1] == {("shop", "orders"), ("a.b", "c")}


def test_a_flush_that_times_out_reports_it(client: httpx.Client) -> None:
    client.post("/cdc", json=[event(1)])
    told = client.post("/flush", json={"timeout_s": 0.05}).json()
    assert told["success"] is False
    assert "durable" in told["error"]


def test_a_flush_with_a_field_that_is_not_known(client: httpx.Client) -> None:
    assert client.post("/flush", json={"table": "x"}).status_code >= 400
