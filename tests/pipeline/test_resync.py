"""A resync through Spark: rows are replaced in one publish, and engines see it."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import httpx

from tests.pipeline.conftest import Pipeline
from tests.pipeline.producer import Producer, flush

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
    assert found == [("delete", 1), ("insert", 4), ("read", 3), ("truncate", 1), ("update", 1)]
