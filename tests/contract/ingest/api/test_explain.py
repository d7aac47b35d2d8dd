"""POST /cdc/explain: a dry run."""

from __future__ import annotations

from typing import Any

import httpx

from tests.contract.ingest.api.api_server import ApiServer, event

SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "type": "int", "required": True},
        {"id": 2, "name": "at", "type": "date", "required": False},
    ],
    "identifier-field-ids": [1],
}


def explained(client: httpx.Client, body: Any, query: str = "") -> Any:
    answer = client.post(f"/cdc/explain{query}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_nothing_is_stored(server: ApiServer, client: httpx.Client, warehouse: str) -> None:
    explained(client, [event(1)])
    assert server.journal.pending(warehouse) == []
    assert client.post("/cdc", json=[event(1)]).json()["isDuplicate"] is False


TAGS = {"type": "list", "element-id": 4, "element": "string", "element-required": False}


def test_a_new_table(client: httpx.Client) -> None:
    told = explained(client, [event(1, after={"id": 1, "amount": 1.5, "tags": ["x"], "empty": None})])
    assert (told["format"], told["eventsReceived"]) == ("native", 1)
    first = told["events"][0]
    assert (first["table"], first["operation"], first["key"]) == ("shop.orders", "insert", ["id"])
    assert first["identity"]
    types = {column["name"]: column["target"] for column in first["columns"]}
    assert types == {"id": "long", "amount": "double", "tags": TAGS, "empty": None}
    assert told["tables"][0]["exists"] is False
    assert any("does not exist yet" in sentence for sentence in told["advice"])


def test_a_value_that_would_not_fit(server: ApiServer, client: httpx.Client) -> None:
    settings = {"policy": "evolve"}
    server.landing.targets["shop", "orders"] = {"schema": SCHEMA, "key": ["id"], "settings": settings}
    try:
        told = explained(client, [event(1, after={"id": 1, "at": "not a date", "new": True})])
    finally:
        del server.landing.targets["shop", "orders"]
    first = told["events"][0]
    assert first["status"] == "dead_lettered"
    assert "at" in first["reason"]
    columns = {column["name"]: column for column in first["columns"]}
    assert (columns["id"]["target"], columns["id"]["exists"]) == ("int", True)
    assert (columns["new"]["target"], columns["new"]["exists"]) == ("boolean", False)
    assert "problem" in columns["at"]


def test_a_frozen_table_leaves_out_what_it_does_not_know(server: ApiServer, client: httpx.Client) -> None:
    settings = {"policy": "freeze"}
    server.landing.targets["shop", "orders"] = {"schema": SCHEMA, "key": ["id"], "settings": settings}
    try:
        told = explained(client, [event(1, after={"id": 1, "new": True})])
    finally:
        del server.landing.targets["shop", "orders"]
    assert "new" in told["tables"][0]["left-out"]


def test_no_key_is_known(client: httpx.Client) -> None:
    change = {"type": "UPDATE", "table": "t", "schema": "s", "record": {"a": 1}, "old_record": {"a": 0}}
    told = explained(client, change)
    assert told["format"] == "supabase"
    assert told["events"][0]["key"] == []
    assert any("no key is known" in sentence for sentence in told["advice"])


def test_rows_without_a_table(client: httpx.Client) -> None:
    told = explained(client, [{"a": 1}])
    assert told["events"][0]["status"] == "dead_lettered"
    assert told["events"][0]["code"] == "no-table"
    assert told["events"][0]["original"] == '{"a":1}'


def test_a_repeat_that_would_not_be_known(client: httpx.Client) -> None:
    told = explained(client, [{"id": 1}], "/shop/rows")
    assert told["events"][0]["table"] == "shop.rows"
    assert any("would not be recognised" in sentence for sentence in told["advice"])
    named = client.post("/cdc/explain/shop/rows", json=[{"id": 1}], headers={"Idempotency-Key": "k"}).json()
    assert not any("would not be recognised" in sentence for sentence in named["advice"])


def test_at_most_twenty_events(client: httpx.Client) -> None:
    told = explained(client, [event(number) for number in range(50)])
    assert (told["eventsReceived"], len(told["events"])) == (50, 20)


def test_nothing_to_explain(client: httpx.Client) -> None:
    assert client.post("/cdc/explain", json=[]).status_code == 400
