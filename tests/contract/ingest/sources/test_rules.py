"""What the rules of a source keep out of the lake."""

from __future__ import annotations

import hmac
import logging
from typing import Any

import orjson
import pytest
import sqlalchemy as sa
from websockets.sync.client import connect

from ingest.store.schema import landing_sources
from tests.contract.ingest.sources.control_lake import ControlLake, event
from tests.contract.ingest.staging_lake import WAREHOUSE, staged_rows

EMAIL, CARD = "ada@example.org", "4111222233334444"
HIDING = {"drop-columns": {"*": ["card"]}, "hash-columns": {"shop.customers": ["email"]}}


def salt_of(lake: ControlLake) -> bytes:
    with lake.catalog.database.engine.connect() as connection:
        return bytes(connection.execute(sa.select(landing_sources.c.salt).distinct()).scalar_one())


def test_a_new_source_is_set_shown_listed_and_deleted(lake: ControlLake) -> None:
    shown = lake.call("PUT", "sources/shop", HIDING)
    assert (shown["name"], shown["state"], shown["rules"]["drop-columns"]) == (
        "shop",
        "running",
        {"*": ["card"]},
    )
    assert lake.call("GET", "sources/shop") == shown
    assert [one["name"] for one in lake.call("GET", "sources")["sources"]] == ["shop"]
    lake.call("DELETE", "sources/shop", status=204)
    assert "shop" in lake.call("GET", "sources/shop", status=404)["error"]["message"]
    lake.call("DELETE", "sources/shop", status=404)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"include": ["orders"]}, "names no table"),
        ({"route": [{"from": "a.b", "to": "*.b"}]}, "more *"),
        ({"unknown": 1}, "unknown"),
        ({"hash-columns": {"a.b": "email"}}, "hash-columns"),
        ({"type-changes": "guess"}, "type-changes"),
    ],
)
def test_wrong_rules_are_refused_when_they_are_set(lake: ControlLake, body: Any, words: str) -> None:
    assert words in lake.call("PUT", "sources/shop", body, status=400)["error"]["message"]
    assert lake.call("GET", "sources") == {"sources": [], "next-page-token": None}


def test_no_byte_of_a_hidden_column_reaches_the_journal(
    lake: ControlLake, caplog: pytest.LogCaptureFixture
) -> None:
    """Not in changes, rejects, dead letters, responses, logs or explanations."""
    caplog.set_level(logging.DEBUG)
    lake.call("PUT", "sources/shop", HIDING)
    fit = event(1, id=1, email=EMAIL, card=CARD, score=1)
    unreadable = {**event(2, id=2, email=EMAIL, card=CARD), "operation": f"{EMAIL}!"}
    unfit = event(3, id=3, email=EMAIL, card=CARD, score={"not": "a number"})
    told = lake.send(fit, unreadable, unfit)
    assert told["deadLettered"] == 1
    lake.land()
    letters = lake.letters()
    assert {letter.code for letter in letters} >= {"unfit"}
    body = [unreadable, event(4, id=4, email=EMAIL, card=CARD)]
    explained = lake.client.post("/cdc/explain", json=body, headers={"X-Source-Id": "shop"})
    assert explained.status_code == 200
    seen = [
        lake.journal_bytes(),
        orjson.dumps(told),
        explained.content,
        caplog.text.encode(),
        orjson.dumps(lake.call("GET", "dead-letters")),
        *(orjson.dumps(lake.call("GET", f"dead-letters/{letter.id}")) for letter in letters),
        orjson.dumps(lake.call("GET", "sources/shop")),
    ]
    for secret in (EMAIL, CARD, salt_of(lake).hex()):
        assert not [place for place, data in enumerate(seen) if secret.encode() in data]
    assert salt_of(lake) not in lake.journal_bytes()


def test_the_search_of_the_journal_finds_what_is_not_hidden(lake: ControlLake) -> None:
    lake.send(event(1, id=1, email=EMAIL, note="x" * 1000))
    assert EMAIL.encode() in lake.journal_bytes()


def test_the_hash_is_hmac_sha256_and_equal_in_all_sources(lake: ControlLake) -> None:
    for source in ("shop", "crm"):
        lake.call("PUT", f"sources/{source}", {"hash-columns": {"*": ["email"]}})
        lake.send(event(1, f"{source}.people", id=1, email=EMAIL), source=source)
    job = lake.lease()
    rows = [row for table in job["tables"] for row in staged_rows(job, table["name"])]
    expected = hmac.digest(salt_of(lake), EMAIL.encode(), "sha256").hex()
    assert [row["email"] for row in rows] == [expected] * len(rows)


def test_tables_are_routed_and_excluded(lake: ControlLake) -> None:
    lake.call(
        "PUT",
        "sources/shop",
        {"exclude": ["public.tmp"], "route": [{"from": "public.*", "to": "lake.*"}]},
    )
    told = lake.send(event(1, "public.orders", id=1), event(2, "public.tmp", id=1))
    assert (told["success"], told["eventsAccepted"]) == (True, 1)
    assert told["events"][0]["reason"] == "the rules of the source exclude its table"
    assert [row.table for row in lake.ingest.journal.pending(WAREHOUSE)] == [("lake", "orders")]
    again = lake.send(event(1, "public.orders", id=1), event(2, "public.tmp", id=1))
    assert again["isDuplicate"] is True
    shown = lake.call("GET", "sources/shop")
    assert shown["numbers"] == {"count": 2, "last": 2, "gaps": 0}


def test_a_request_of_excluded_events_only_is_a_success(lake: ControlLake) -> None:
    lake.call("PUT", "sources/shop", {"include": ["shop.orders"]})
    for sequence in (1, 2):
        told = lake.send(event(sequence, id=1))
        assert (told["success"], told["eventsAccepted"]) == (True, 0)
    debezium = {
        "op": "c",
        "after": {"id": 1},
        "source": {"name": "shop", "schema": "shop", "table": "tmp", "lsn": 7, "connector": "postgresql"},
    }
    for _ in range(2):
        assert lake.client.post("/cdc", json=debezium).status_code == 202
    assert lake.ingest.journal.pending(WAREHOUSE) == []


def test_a_fix_with_hidden_columns_is_posted_anew(lake: ControlLake) -> None:
    lake.call("PUT", "sources/shop", HIDING)
    bad = {**event(1, id=1, email=EMAIL), "operation": "?"}
    lake.send(bad, event(2, id=2, email=EMAIL))
    lake.land()
    [letter] = lake.letters()
    answer = lake.call("PUT", f"dead-letters/{letter.id}", {"event": event(1, id=1, email=EMAIL)}, status=400)
    assert "post the corrected event to /cdc" in answer["error"]["message"]


def test_websocket_batches_are_under_the_rules(lake: ControlLake) -> None:
    lake.call("PUT", "sources/shop", HIDING)
    batch = {
        "type": "cdc_batch",
        "timestamp": 0,
        "sourceDoId": "shop",
        "sequenceNumber": 1,
        "events": [event(1, id=1, email=EMAIL, card=CARD)],
    }
    with connect(f"ws://127.0.0.1:{lake.port}/ws") as socket:
        socket.send(orjson.dumps(batch).decode())
        assert orjson.loads(socket.recv())["type"] == "ack"
    assert not [secret for secret in (EMAIL, CARD) if secret.encode() in lake.journal_bytes()]


def test_rules_go_with_their_warehouse(lake: ControlLake) -> None:
    lake.call("PUT", "sources/shop", HIDING)
    lake.ingest.sources.forget_others(lambda: [WAREHOUSE])
    assert lake.ingest.sources.rules(WAREHOUSE).by_source
    lake.ingest.sources.forget_others(lambda: ["another"])
    with lake.catalog.database.engine.connect() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(landing_sources)).scalar() == 0


def test_a_source_shows_how_far_it_has_landed(lake: ControlLake) -> None:
    lake.send(event(1, id=1), event(2, id=2))
    lake.land()
    shown = lake.call("GET", "sources/shop")
    assert shown["rules"] is None
    [table] = shown["tables"]
    assert (table["table"], table["time-ms"]) == ("shop.customers", 1_763_280_000_000)
    assert shown["last-position"] == table["position"] > ""
    page = lake.call("GET", "sources?pageSize=1")
    assert [one["name"] for one in page["sources"]] == ["shop"]


def test_the_rule_of_a_source_for_type_changes_holds_for_tables_without_a_setting(lake: ControlLake) -> None:
    shown = lake.call("PUT", "sources/shop", {"type-changes": "reject"})
    assert shown["rules"]["type-changes"] == "reject"
    for table in ("a", "b"):
        lake.send(event(1 if table == "a" else 2, f"shop.{table}", id=1, n=1))
        lake.land()
    path = "namespaces/shop/tables/b/ingest"
    assert lake.call("GET", path)["type-changes"] is None
    assert lake.call("PUT", path, {"type-changes": "convert"})["type-changes"] == "convert"
    lake.send(event(3, "shop.a", id=2, n=2.5))
    lake.land()
    assert [letter.table for letter in lake.letters()] == [("shop", "a")]
    lake.send(event(4, "shop.b", id=2, n=2.5))
    assert lake.lease()["kind"] == "convert"
