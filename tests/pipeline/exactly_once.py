"""The proof of exactly once: changes are sent while parts of the pipeline fail, then the tables are compared
with a plain model, row for row.

It is sized by the environment where that is set: CALVE_PROOF_CHANGES, _TABLES, _KILLS.
"""

from __future__ import annotations

import os
import random
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import httpx

from tests.clients.duckdb_client import DuckLake
from tests.pipeline.conftest import Pipeline
from tests.pipeline.links import Phases, sending
from tests.pipeline.model import Size, World
from tests.pipeline.own import expire_leases, landing, wait_until_at_work, workers_seen
from tests.pipeline.producer import wait_until_landed

Strike = Callable[[], None]


def long_size(*, kills: int) -> Size:
    given = os.environ.get
    return Size(
        changes=int(given("CALVE_PROOF_CHANGES", "1000000")),
        tables=int(given("CALVE_PROOF_TABLES", "20")),
        kills=int(given("CALVE_PROOF_KILLS", str(kills))),
        sources=8,
        keys=400,
        batch=500,
    )


@dataclass(slots=True)
class Faults:
    """Kills of the server and of the worker, at random moments while there is work.

    With `waits`, the leases of what was killed end by themselves, as in production.
    """

    pipeline: Pipeline
    rng: random.Random
    waits: bool
    _dead: set[str] = field(default_factory=set)

    def kill_server(self) -> None:
        time.sleep(self.rng.uniform(0.1, 1.5))
        self.pipeline.stack.server.kill()
        if not self.waits:
            expire_leases(self.pipeline.stack, "staging")
        self.pipeline.stack.server.start()

    def kill_worker(self) -> None:
        self.wait_for_work()
        self._dead |= workers_seen(self.pipeline.url)
        self.pipeline.worker.kill()
        if not self.waits:
            expire_leases(self.pipeline.stack, "leased")
        self.pipeline.worker.start(wait=False)

    def kill_server_and_worker(self) -> None:
        self.kill_server()
        self.kill_worker()

    def wait_for_work(self) -> None:
        """Until a moment before, during or after the publish of a worker that lives."""
        wait_until_at_work(self.pipeline.url, dead=self._dead, timeout_s=400)
        time.sleep(self.rng.uniform(0, 1.5 * self._job_s()))

    def _job_s(self) -> float:
        """How long a job takes on this machine, by the quickest of the newest; a guess before the first."""
        answer = httpx.get(f"{self.pipeline.url}/lake/v1/main/jobs", params={"limit": 20}, timeout=60)
        done = [job for job in answer.json()["jobs"] if job["state"] == "done"]
        took_ms = [job["finished-ms"] - job["created-ms"] for job in done]
        return min(60.0, min(took_ms) / 1000) if took_ms else 3.0


def prove(pipeline: Pipeline, size: Size, seed: int, strikes: Sequence[Strike]) -> str:
    """Send everything, with one strike in each phase, and compare. Returns sizes and times, to be printed."""
    world = World(f"n{uuid.uuid4().hex[:8]}", size, seed, phases=len(strikes) + 1)
    deliveries = world.deliveries()
    sent = sum(len(found) for found in deliveries.values())
    phases = Phases()
    began_s = time.monotonic()
    with sending(pipeline.url, deliveries, phases) as senders:
        for phase, strike in enumerate(strikes):
            phases.begin(phase)
            strike()
        phases.begin(len(strikes))
        tries = sum(sender.result() for sender in senders)
    acked_s = time.monotonic() - began_s
    wait_until_landed(pipeline.url, timeout_s=1800)
    landed_s = time.monotonic() - began_s
    _require_equal(pipeline, world)
    return (
        f"{size.changes} changes over {size.tables} tables in {sent} deliveries, {tries} tries; acknowledged "
        f"after {acked_s:.0f} s, landed after {landed_s:.0f} s; mirrors and changes equal the model"
    )


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
