"""A resync through Spark: rows are replaced in one publish, and engines see it."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import httpx

from tests.pipeline.conftest import Pipeline, Pipelines
from tests.pipeline.producer import Producer, flush
from tests.pipeline.test_rebuild import call, ingest_url, rebuild_url, rebuilt, state

Make = Callable[[Pipeline, str], Producer]


def test_a_resync_replaces_rows_in_one_publish(pipeline: Pipeline, produced: Make) -> None:
    space = f"n{uuid.uuid4().hex[:8]}"
    shop, table = produced(pipeline, f"shop-{space}"), f"{space}.orders"
    resync = f"{pipeline.url}/lake/v1/main/namespaces/{space}/tables/orders/resync"
    shop.send([shop.event("INSERT", table, None, {"id": n, "item": f"old {n}"}) for n in range(1, 5)])
    flush(pipeline.url)
    httpx.post(resync).raise_for_status()
    shop.send([shop.event("READ", table, None, {"id": 1, "item": "new 1"})])
    shop.send(
        [
            shop.event("UPDATE", table, {"id": 2}, {"id": 2, "item": "streamed 2"}),
            shop.event("DELETE", table, {"id": 3}, None),
        ]
    )
    shop.send([shop.event("READ", table, None, {"id": n, "item": f"read {n}"}) for n in (2, 3)])
    httpx.post(f"{resync}/end").raise_for_status()
    flush(pipeline.url)
    done = httpx.get(resync).raise_for_status().json()
    assert done["state"] == "published"
    rows = f"SELECT id, item FROM lake.{table} ORDER BY id"
    assert pipeline.rows(rows) == [(1, "new 1"), (2, "streamed 2")]
    before = pipeline.rows(rows, f"main@{done['number'] - 1}")
    assert before == [(n, f"old {n}") for n in range(1, 5)]
    found = pipeline.rows(f"SELECT _operation, count(*) FROM lake.{table}__changes GROUP BY ALL ORDER BY ALL")
    assert found == [("delete", 1), ("insert", 4), ("read", 3), ("truncate", 2), ("update", 1)]


def test_a_resync_closes_gaps_so_that_the_mirror_can_be_rebuilt(pipelines: Pipelines, produced: Make) -> None:
    pipeline, space = pipelines.shared("embedded"), f"n{uuid.uuid4().hex[:8]}"
    shop, table = produced(pipeline, f"shop-{space}"), f"{space}.t"
    call("put", ingest_url(pipeline, table), json={"mode": "mirror"}).raise_for_status()
    shop.send([shop.event("INSERT", table, None, {"id": n, "x": "old"}) for n in (1, 2)], wait="commit")
    call("put", ingest_url(pipeline, table), json={"mode": "mirror+changes"}).raise_for_status()
    shop.send([shop.event("INSERT", table, None, {"id": 3, "x": "old"})], wait="commit")
    assert call("post", rebuild_url(pipeline, table)).status_code == 409
    assert state(pipeline, table)["gap"] is not None
    resync = f"{pipeline.url}/lake/v1/main/namespaces/{space}/tables/t/resync"
    call("post", resync).raise_for_status()
    shop.send([shop.event("READ", table, None, {"id": n, "x": "read"}) for n in (1, 3)])
    call("post", f"{resync}/end").raise_for_status()
    flush(pipeline.url)
    shop.send([shop.event("UPDATE", table, {"id": 3}, {"id": 3, "x": "new"})], wait="commit")
    assert state(pipeline, table)["gap"] is None
    rows = f"SELECT id, x FROM lake.{table} ORDER BY id"
    assert pipeline.rows(rows) == [(1, "read"), (3, "new")]
    call("post", rebuild_url(pipeline, table)).raise_for_status()
    found = rebuilt(pipeline, table)["rebuild"]
    assert (found["error"], found["rebuilt-why"]) == (None, "it was requested")
    assert pipeline.rows(rows, f"main@{found['rebuilt-number']}") == [(1, "read"), (3, "new")]
