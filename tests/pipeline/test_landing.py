"""From POST /cdc to rows that any engine reads."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import httpx

from tests.pipeline.conftest import Pipeline
from tests.pipeline.producer import Producer, flush

Make = Callable[[Pipeline, str], Producer]


def fresh() -> str:
    return f"n{uuid.uuid4().hex[:8]}"


def test_inserts_updates_and_deletes_become_rows_and_history(pipeline: Pipeline, produced: Make) -> None:
    space = fresh()
    shop = produced(pipeline, f"shop-{space}")
    table = f"{space}.orders"
    shop.send(
        [
            shop.event("INSERT", table, None, {"id": 1, "item": "a", "amount": 1.5}),
            shop.event("INSERT", table, None, {"id": 2, "item": "b", "amount": 2.5}),
            shop.event("UPDATE", table, {"id": 1}, {"id": 1, "item": "a", "amount": 9.5}),
            shop.event("DELETE", table, {"id": 2}, None),
        ]
    )
    flush(pipeline.url)
    assert pipeline.rows(f"SELECT id, item, amount FROM lake.{table}") == [(1, "a", 9.5)]
    history = pipeline.rows(f"SELECT _operation, id, amount FROM lake.{table}__changes ORDER BY _position")
    assert history == [("insert", 1, 1.5), ("insert", 2, 2.5), ("update", 1, 9.5), ("delete", 2, None)]


def test_a_producer_can_wait_until_its_changes_are_visible(pipeline: Pipeline, produced: Make) -> None:
    space = fresh()
    shop = produced(pipeline, f"shop-{space}")
    answer = shop.send([shop.event("INSERT", f"{space}.t", None, {"id": 1, "x": "y"})], wait="commit")
    snapshot = answer["snapshots"][0]
    found = httpx.get(f"{pipeline.url}/v1/main/namespaces/{space}/tables/t").json()["metadata"]
    assert found["current-snapshot-id"] == snapshot["mirror-snapshot-id"]
    assert pipeline.rows(f"SELECT id, x FROM lake.{space}.t", f"main@{snapshot['number']}") == [(1, "y")]


def test_a_bad_row_does_not_stop_others_and_can_be_fixed_and_replayed(
    pipeline: Pipeline, produced: Make
) -> None:
    space = fresh()
    shop = produced(pipeline, f"shop-{space}")
    table = f"{space}.t"
    shop.send([shop.event("INSERT", table, None, {"id": 1, "n": 10})])
    flush(pipeline.url)
    shop.send(
        [
            shop.event("INSERT", table, None, {"id": 2, "n": "not a number"}),
            shop.event("INSERT", table, None, {"id": 3, "n": 30}),
        ]
    )
    flush(pipeline.url)
    assert pipeline.rows(f"SELECT id, n FROM lake.{table} ORDER BY id") == [(1, 10), (3, 30)]
    letters = f"{pipeline.url}/lake/v1/main/dead-letters"
    found = httpx.get(letters, params={"table": table}).json()["dead-letters"]
    assert [letter["state"] for letter in found] == ["open"]
    assert "n" in found[0]["reason"]
    assert "not a number" in found[0]["reason"]
    kept = pipeline.rows(f"SELECT _reason, _dead_letter FROM lake.{table}__rejects")
    assert kept == [(found[0]["reason"], found[0]["id"])]
    original = httpx.get(f"{letters}/{found[0]['id']}").json()["original"]
    assert "not a number" in original
    fixed = shop.event("INSERT", table, None, {"id": 2, "n": 20})
    httpx.put(f"{letters}/{found[0]['id']}", json={"event": fixed}).raise_for_status()
    assert httpx.post(f"{letters}/replay", json={"ids": [found[0]["id"]]}).json() == {"replayed": 1}
    flush(pipeline.url)
    assert pipeline.rows(f"SELECT id, n FROM lake.{table} ORDER BY id") == [(1, 10), (2, 20), (3, 30)]


def test_plain_rows_are_appended(pipeline: Pipeline) -> None:
    space = fresh()
    body = '{"x": 1, "y": "a"}\n{"x": 1, "y": "a"}\n'
    answer = httpx.post(
        f"{pipeline.url}/cdc/{space}/log", content=body, params={"wait": "commit"}, timeout=90
    )
    assert answer.json()["committed"] is True, answer.text
    assert pipeline.rows(f"SELECT x, y FROM lake.{space}.log") == [(1, "a"), (1, "a")]


def test_arrays_of_one_type_become_lists_and_others_json_text(pipeline: Pipeline, produced: Make) -> None:
    space = fresh()
    shop = produced(pipeline, f"shop-{space}")
    table = f"{space}.t"
    shop.send([shop.event("INSERT", table, None, {"id": 1, "tags": ["a", None], "mixed": [1, "a"]})])
    flush(pipeline.url)
    shop.send([shop.event("UPDATE", table, {"id": 1}, {"id": 1, "tags": [], "mixed": [2]})])
    shop.send([shop.event("INSERT", table, None, {"id": 2, "tags": ["b"], "mixed": []})])
    flush(pipeline.url)
    found = pipeline.rows(f"SELECT id, tags, mixed FROM lake.{table} ORDER BY id")
    assert found == [(1, [], "[2]"), (2, ["b"], "[]")]
