"""Compaction by the worker: small files are joined in the lane of the table, and no row comes back."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness.stacks import STACKS, StackName, Stacks
from tests.pipeline.conftest import Pipeline
from tests.pipeline.own import own_pipeline
from tests.pipeline.producer import Producer, flush

TABLE = "/lake/v1/main/namespaces/shop/tables/orders"
BATCHES = 16


@pytest.fixture(scope="module", params=STACKS)
def compacted(
    request: pytest.FixtureRequest, stacks: Stacks, tmp_path_factory: pytest.TempPathFactory
) -> Any:
    """A pipeline that has landed some batches of a table, and the rows that the table must have."""
    name: StackName = request.param
    folder: Path = tmp_path_factory.mktemp("compaction")
    with own_pipeline(stacks, name, folder) as pipeline:
        yield pipeline, land(pipeline)


def land(pipeline: Pipeline) -> dict[int, int]:
    rng, rows = random.Random(5), dict[int, int]()
    shop = Producer(pipeline.url, "shop")
    for batch in range(BATCHES):
        events = []
        for _ in range(20):
            key = rng.randint(1, 60)
            if key in rows and rng.random() < 0.3:
                del rows[key]
                events.append(shop.event("DELETE", "shop.orders", {"id": key}, None))
                continue
            kind = "UPDATE" if key in rows else "INSERT"
            rows[key] = batch
            events.append(shop.event(kind, "shop.orders", {"id": key}, {"id": key, "batch": batch}))
        shop.send(events)
        flush(pipeline.url)
    shop.client.close()
    return rows


def maintenance(pipeline: Pipeline, table: str = TABLE) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{pipeline.url}{table}/maintenance").raise_for_status().json()
    return found


def wait_for(what: Callable[[], Any], timeout_s: float = 120) -> Any:
    until_s = time.monotonic() + timeout_s
    while time.monotonic() < until_s:
        if found := what():
            return found
        time.sleep(0.2)
    raise AssertionError("it did not happen in time")


def test_what_batches_leave_behind_is_joined_by_itself(compacted: tuple[Pipeline, dict[int, int]]) -> None:
    pipeline, rows = compacted
    done = wait_for(lambda: maintenance(pipeline)["last"].get("compact"))
    assert done["why"]
    changes = wait_for(lambda: maintenance(pipeline, f"{TABLE}__changes")["last"].get("compact"))
    assert changes["files-after"] < changes["files-before"]
    wait_for(lambda: maintenance(pipeline)["next"] is None)
    assert maintenance(pipeline)["health"]["data-files"] < BATCHES
    found = pipeline.rows("SELECT id, batch FROM lake.shop.orders ORDER BY id")
    assert found == sorted(rows.items())
    assert len(pipeline.rows("SELECT id FROM lake.shop.orders__changes")) == BATCHES * 20


def test_a_compaction_on_request_joins_the_rest(compacted: tuple[Pipeline, dict[int, int]]) -> None:
    pipeline, rows = compacted
    answer = httpx.post(f"{pipeline.url}{TABLE}/compact")
    assert (answer.status_code, answer.json()["state"]) == (202, "requested")
    before_ms = time.time() * 1000
    wait_for(lambda: maintenance(pipeline)["last"].get("compact", {}).get("time-ms", 0) >= before_ms - 1000)
    assert pipeline.rows("SELECT id, batch FROM lake.shop.orders ORDER BY id") == sorted(rows.items())


def test_manifests_are_rewritten_on_request(compacted: tuple[Pipeline, dict[int, int]]) -> None:
    pipeline, rows = compacted
    assert httpx.post(f"{pipeline.url}{TABLE}/rewrite-manifests").status_code == 202
    done = wait_for(lambda: maintenance(pipeline)["last"].get("rewrite-manifests"))
    assert done["manifests-before"] >= 1
    assert pipeline.rows("SELECT id, batch FROM lake.shop.orders ORDER BY id") == sorted(rows.items())


def test_a_worker_looks_for_changes_to_archive(compacted: tuple[Pipeline, dict[int, int]]) -> None:
    """All of them landed today, so it finds none. A compaction joins what is too young for the archive."""
    pipeline, _ = compacted
    changes = f"{TABLE}__changes"
    httpx.put(f"{pipeline.url}{changes}/maintenance", json={"archive-after-days": 1}).raise_for_status()
    done = wait_for(lambda: maintenance(pipeline, changes)["last"].get("archive"))
    assert (done["files-left"], done.get("rewritten-data-files")) == (0, None)
    found = wait_for(lambda: (one := maintenance(pipeline, changes))["next"] is None and one)
    assert found["health"]["archived-before"] is not None
    policy = {"archive-after-days": 1, "small-files-min": 2}
    httpx.put(f"{pipeline.url}{changes}/maintenance", json=policy).raise_for_status()
    before_ms = found["last"]["compact"]["time-ms"]
    httpx.post(f"{pipeline.url}{changes}/compact").raise_for_status()
    wait_for(lambda: maintenance(pipeline, changes)["last"]["compact"]["time-ms"] > before_ms)
    assert len(pipeline.rows("SELECT id FROM lake.shop.orders__changes")) == BATCHES * 20
