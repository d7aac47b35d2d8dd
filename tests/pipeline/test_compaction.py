"""Compaction by the worker: small files are joined in the lane of the table, and no row comes back."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.harness.stacks import StackName
from tests.pipeline.conftest import Pipeline
from tests.pipeline.producer import Producer, flush

BATCHES = 16


@dataclass(frozen=True, slots=True)
class Landed:
    """A table that some batches have landed in, and the rows that it must have."""

    pipeline: Pipeline
    space: str
    rows: dict[int, int]

    def address(self, table: str = "orders") -> str:
        return f"{self.pipeline.url}/lake/v1/main/namespaces/{self.space}/tables/{table}"

    def maintenance(self, table: str = "orders") -> dict[str, Any]:
        answer = httpx.get(f"{self.address(table)}/maintenance", timeout=60)
        found: dict[str, Any] = answer.raise_for_status().json()
        return found

    def found(self) -> list[tuple[object, ...]]:
        return self.pipeline.rows(f"SELECT id, batch FROM lake.{self.space}.orders ORDER BY id")


@pytest.fixture(scope="module")
def landed() -> dict[StackName, Landed]:
    """One table for each stack, shared by the tests."""
    return {}


@pytest.fixture
def compacted(pipeline: Pipeline, landed: dict[StackName, Landed]) -> Landed:
    name = pipeline.stack.name
    if name not in landed:
        space = f"n{uuid.uuid4().hex[:8]}"
        landed[name] = Landed(pipeline, space, land(pipeline, space))
    return landed[name]


def land(pipeline: Pipeline, space: str) -> dict[int, int]:
    rng, rows = random.Random(5), dict[int, int]()
    shop = Producer(pipeline.url, f"shop-{space}")
    for batch in range(BATCHES):
        events = []
        for _ in range(20):
            key = rng.randint(1, 60)
            if key in rows and rng.random() < 0.3:
                del rows[key]
                events.append(shop.event("DELETE", f"{space}.orders", {"id": key}, None))
                continue
            kind = "UPDATE" if key in rows else "INSERT"
            rows[key] = batch
            events.append(shop.event(kind, f"{space}.orders", {"id": key}, {"id": key, "batch": batch}))
        shop.send(events)
        flush(pipeline.url)
    shop.client.close()
    return rows


def wait_for(what: Callable[[], Any], timeout_s: float = 120) -> Any:
    until_s = time.monotonic() + timeout_s
    while time.monotonic() < until_s:
        if found := what():
            return found
        time.sleep(0.1)
    raise AssertionError("it did not happen in time")


def test_what_batches_leave_behind_is_joined_by_itself(compacted: Landed) -> None:
    done = wait_for(lambda: compacted.maintenance()["last"].get("compact"))
    assert done["why"]
    changes = wait_for(lambda: compacted.maintenance("orders__changes")["last"].get("compact"))
    assert changes["files-after"] < changes["files-before"]
    wait_for(lambda: compacted.maintenance()["next"] is None)
    assert compacted.maintenance()["health"]["data-files"] < BATCHES
    assert compacted.found() == sorted(compacted.rows.items())
    counted = compacted.pipeline.rows(f"SELECT count(*) FROM lake.{compacted.space}.orders__changes")
    assert counted == [(BATCHES * 20,)]


def test_a_compaction_on_request_joins_the_rest(compacted: Landed) -> None:
    answer = httpx.post(f"{compacted.address()}/compact", timeout=60)
    assert (answer.status_code, answer.json()["state"]) == (202, "requested")
    before_ms = time.time() * 1000
    wait_for(lambda: compacted.maintenance()["last"].get("compact", {}).get("time-ms", 0) >= before_ms - 1000)
    assert compacted.found() == sorted(compacted.rows.items())


def test_manifests_are_rewritten_on_request(compacted: Landed) -> None:
    assert httpx.post(f"{compacted.address()}/rewrite-manifests", timeout=60).status_code == 202
    done = wait_for(lambda: compacted.maintenance()["last"].get("rewrite-manifests"))
    assert done["manifests-before"] >= 1
    assert compacted.found() == sorted(compacted.rows.items())


def test_a_worker_looks_for_changes_to_archive(compacted: Landed) -> None:
    """All of them landed today, so it finds none. A compaction joins what is too young for the archive."""
    address = compacted.address("orders__changes")
    httpx.put(f"{address}/maintenance", json={"archive-after-days": 1}, timeout=60).raise_for_status()
    done = wait_for(lambda: compacted.maintenance("orders__changes")["last"].get("archive"))
    assert (done["files-left"], done.get("rewritten-data-files")) == (0, None)
    found = wait_for(lambda: (one := compacted.maintenance("orders__changes"))["next"] is None and one)
    assert found["health"]["archived-before"] is not None
    policy = {"archive-after-days": 1, "small-files-min": 2}
    httpx.put(f"{address}/maintenance", json=policy, timeout=60).raise_for_status()
    before_ms = found["last"]["compact"]["time-ms"]
    httpx.post(f"{address}/compact", timeout=60).raise_for_status()
    wait_for(lambda: compacted.maintenance("orders__changes")["last"]["compact"]["time-ms"] > before_ms)
    counted = compacted.pipeline.rows(f"SELECT count(*) FROM lake.{compacted.space}.orders__changes")
    assert counted == [(BATCHES * 20,)]
