"""Subscribers of a pipeline: each applies every change once, in the order of each row, and ends with the
mirror's rows, whatever is disconnected, restarted or killed.

The long form is sized by the environment where that is set: CALVE_PROOF_SUBSCRIBERS, _CHANGES, _KILLS.
"""

from __future__ import annotations

import itertools
import os
import random
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.clients.duckdb_client import DuckLake
from tests.concurrency.seeds import seed
from tests.harness.stacks import STACKS, StackName, Stacks
from tests.pipeline.conftest import Pipeline
from tests.pipeline.own import own_pipeline, wait_until_at_work, workers_seen
from tests.pipeline.producer import Event, Producer, in_batches, wait_until_landed
from tests.pipeline.subscribers import Subscribers

__all__ = ["seed"]  # a fixture
pytestmark = pytest.mark.xdist_group("pipeline")

TABLES = ("orders", "items")
BATCH = 40
SEND_EVERY_S = 0.05
SEND_MORE_EVERY_S = 0.5  # while there is something left to kill


@dataclass(frozen=True, slots=True)
class Size:
    subscribers: int
    changes: int  # at least; the producer goes on until the last kill
    kills: int  # of the worker; the server is killed twice as often
    keys: int  # of each table


SHORT = Size(subscribers=6, changes=1_200, kills=1, keys=50)


def long() -> Size:
    given = os.environ.get
    return Size(
        subscribers=int(given("CALVE_PROOF_SUBSCRIBERS", "50")),
        changes=int(given("CALVE_PROOF_CHANGES", "20000")),
        kills=int(given("CALVE_PROOF_KILLS", "5")),
        keys=1_000,
    )


@pytest.mark.timeout(600)
def test_every_change_once_and_the_rows_of_the_mirror(stacks: Stacks, tmp_path: Path, seed: int) -> None:
    with own_pipeline(stacks, "embedded", tmp_path) as pipeline:
        prove(pipeline, SHORT, seed)


@pytest.mark.proof
@pytest.mark.parametrize("name", STACKS)
def test_fifty_subscribers(stacks: Stacks, tmp_path: Path, seed: int, name: StackName) -> None:
    with own_pipeline(stacks, name, tmp_path) as pipeline:
        prove(pipeline, long(), seed)


def prove(pipeline: Pipeline, size: Size, seed: int) -> None:
    space, rng = f"s{uuid.uuid4().hex[:8]}", random.Random(seed)
    subscribers = Subscribers(pipeline.url, f"{space}.*", size.subscribers, size.changes, rng)
    subscribers.start()
    producer = Producer(pipeline.url, f"{space}-source")
    is_over = threading.Event()
    sending = threading.Thread(target=_send, args=(producer, space, size, random.Random(seed), is_over))
    sending.start()
    try:
        _kill(pipeline, size.kills, rng)
    finally:
        is_over.set()
        sending.join()
        producer.client.close()
    wait_until_landed(pipeline.url, timeout_s=1800)
    subscribers.finish(_head(pipeline), timeout_s=900)
    published = _require_equal(pipeline, space, subscribers)
    crashes = sum(one.crashes for one in subscribers.all)
    connections = sum(one.connections for one in subscribers.all)
    rows = sum(one.rows_read for one in subscribers.all)
    print(
        f"{size}: {published} changes; {connections} connections, {crashes} crashes of subscribers, "
        f"{rows} rows of snapshots; all copies equal the mirror"
    )


def _kill(pipeline: Pipeline, kills: int, rng: random.Random) -> None:
    """The server at random moments, and the worker while it has a job."""
    dead: set[str] = set()
    for _ in range(kills):
        for _ in range(2):
            time.sleep(rng.uniform(0.5, 4))
            pipeline.stack.server.kill()
            pipeline.stack.server.start()
        wait_until_at_work(pipeline.url, dead=dead, timeout_s=400)
        time.sleep(rng.uniform(0, 3))
        dead |= workers_seen(pipeline.url)
        pipeline.worker.kill()
        pipeline.worker.start(wait=False)


def _send(producer: Producer, space: str, size: Size, rng: random.Random, is_over: threading.Event) -> None:
    sent = 0
    for events in in_batches(_events(producer, space, size.keys, rng), BATCH):
        if sent >= size.changes and is_over.is_set():
            return
        producer.insist(events, timeout_s=300)
        sent += len(events)
        time.sleep(SEND_EVERY_S if sent < size.changes else SEND_MORE_EVERY_S)


def _events(producer: Producer, space: str, keys: int, rng: random.Random) -> Iterator[Event]:
    """Inserts, updates and deletes of few rows, for ever. `v` grows with each change of the source."""
    rows: dict[tuple[str, int], dict[str, object]] = {}
    for v in itertools.count():
        table, id_ = rng.choice(TABLES), rng.randrange(keys)
        before = rows.get((table, id_))
        name = f"{space}.{table}"
        if before is not None and rng.random() < 0.2:
            del rows[table, id_]
            yield producer.event("DELETE", name, before=before)
            continue
        after = {"id": id_, "v": v, "text": f"t{v}"}
        rows[table, id_] = after
        yield producer.event("UPDATE" if before else "INSERT", name, before, after)


def _head(pipeline: Pipeline) -> int:
    answer = httpx.get(f"{pipeline.url}/lake/v1/main/events", params={"after": 2**61}, timeout=60)
    number: int = answer.json()["head"]
    return number


def _require_equal(pipeline: Pipeline, space: str, subscribers: Subscribers) -> int:
    """How many changes were published."""
    mirror: dict[tuple[str, object], dict[str, object]] = {}
    published: set[str] = set()
    with DuckLake(pipeline.stack) as lake:
        for table in TABLES:
            for id_, v, text in lake.sql(f"SELECT id, v, text FROM lake.{space}.{table}"):
                mirror[f"{space}.{table}", id_] = {"id": id_, "v": v, "text": text}
            published |= {
                str(id_) for (id_,) in lake.sql(f"SELECT _event_id FROM lake.{space}.{table}__changes")
            }
    assert mirror
    for number, one in enumerate(subscribers.all):
        assert one.kept.rows == mirror, f"subscriber {number}"
        twice = [event for event, count in one.kept.applied.items() if count > 1]
        assert twice == [], f"subscriber {number}"
        if number % 2 == 0:  # from the beginning on, without a snapshot
            assert set(one.kept.applied) == published, f"subscriber {number}"
    return len(published)
