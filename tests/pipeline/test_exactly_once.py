"""Exactly once: whatever is sent twice, overtaken or killed, the tables equal a plain model, row for row.

The long form is sized by the environment where that is set: CALVE_PROOF_CHANGES, _TABLES, _KILLS.
"""

from __future__ import annotations

import os
import random
import time
import uuid
from pathlib import Path

import httpx
import pytest

from tests.clients.duckdb_client import DuckLake
from tests.concurrency.seeds import seed
from tests.harness.stacks import STACKS, StackName, Stacks
from tests.pipeline.conftest import Pipeline
from tests.pipeline.links import Phases, sending
from tests.pipeline.model import Size, World
from tests.pipeline.own import expire_leases, landing, own_pipeline, wait_until_at_work, workers_seen
from tests.pipeline.producer import wait_until_landed

__all__ = ["seed"]  # a fixture
pytestmark = pytest.mark.xdist_group("pipeline")

SHORT = Size(changes=6_000, tables=4, kills=1)


def long() -> Size:
    given = os.environ.get
    return Size(
        changes=int(given("CALVE_PROOF_CHANGES", "1000000")),
        tables=int(given("CALVE_PROOF_TABLES", "20")),
        kills=int(given("CALVE_PROOF_KILLS", "20")),
        sources=8,
        keys=400,
        batch=500,
    )


@pytest.mark.timeout(600)
def test_the_tables_equal_the_model_after_kills(stacks: Stacks, tmp_path: Path, seed: int) -> None:
    with own_pipeline(stacks, "embedded", tmp_path, only="landing") as pipeline:
        prove(pipeline, SHORT, seed, waits=False)


@pytest.mark.proof
@pytest.mark.parametrize("name", STACKS)
def test_the_tables_equal_the_model_after_many_kills(
    stacks: Stacks, tmp_path: Path, seed: int, name: StackName
) -> None:
    with own_pipeline(stacks, name, tmp_path) as pipeline:
        prove(pipeline, long(), seed, waits=True)


def prove(pipeline: Pipeline, size: Size, seed: int, *, waits: bool) -> None:
    """The long form waits until the leases of what was killed are over."""
    world = World(f"n{uuid.uuid4().hex[:8]}", size, seed)
    deliveries = world.deliveries()
    sent = sum(len(found) for found in deliveries.values())
    phases = Phases()
    began_s = time.monotonic()
    with sending(pipeline.url, deliveries, phases) as senders:
        _kill_both(pipeline, phases, size.kills, random.Random(seed), waits=waits)
        phases.begin(size.kills)
        tries = sum(sender.result() for sender in senders)
    acked_s = time.monotonic() - began_s
    wait_until_landed(pipeline.url, timeout_s=1800)
    landed_s = time.monotonic() - began_s
    _require_equal(pipeline, world)
    print(
        f"{size.changes} changes over {size.tables} tables in {sent} deliveries, {tries} tries; "
        f"server and worker killed {size.kills} times each; acknowledged after {acked_s:.0f} s, "
        f"landed after {landed_s:.0f} s; mirror and changes equal the model"
    )


def _kill_both(pipeline: Pipeline, phases: Phases, kills: int, rng: random.Random, *, waits: bool) -> None:
    """One kill of each in every phase, at a random moment while there is work."""
    dead: set[str] = set()
    for phase in range(kills):
        phases.begin(phase)
        time.sleep(rng.uniform(0.1, 1.5))
        pipeline.stack.server.kill()
        if not waits:
            expire_leases(pipeline.stack, "staging")
        pipeline.stack.server.start()
        wait_until_at_work(pipeline.url, dead=dead, timeout_s=400)
        time.sleep(rng.uniform(0, 1.5 * _job_s(pipeline)))  # before, during or after its publish
        dead |= workers_seen(pipeline.url)
        pipeline.worker.kill()
        if not waits:
            expire_leases(pipeline.stack, "leased")
        pipeline.worker.start(wait=False)


def _job_s(pipeline: Pipeline) -> float:
    """How long a job takes on this machine, by the newest that is done; a guess before the first."""
    found = httpx.get(f"{pipeline.url}/lake/v1/main/jobs", params={"limit": 20}, timeout=60).json()["jobs"]
    took_ms = [job["finished-ms"] - job["created-ms"] for job in found if job["state"] == "done"]
    return min(60.0, min(took_ms) / 1000) if took_ms else 3.0


def _require_equal(pipeline: Pipeline, world: World) -> None:
    found = landing(pipeline.url)
    assert found is not None
    assert found["dead-letters"] == {}
    for table in world.tables:
        name = f"lake.{world.space}.{table}"
        with DuckLake(pipeline.stack) as lake:
            mirror = lake.sql(f"SELECT id, v, name, note FROM {name} ORDER BY id")
            logged = lake.sql(f"SELECT _event_id, _operation, id, v, name, note FROM {name}__changes")
        assert mirror == sorted(world.mirror[table].values()), f"{table} is not the model"
        assert sorted(logged) == sorted((event, *row) for event, row in world.changes[table].items()), (
            f"the history of {table} is not the model"
        )
