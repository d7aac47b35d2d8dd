"""Outages: the object store refuses, hangs or is slow; the disk of the journal is full.

Acknowledgements go on while the store is away, /status says what is wrong, and everything lands afterwards,
once. A disk that is full gives no false acknowledgement.
"""

from __future__ import annotations

import contextlib
import os
import resource
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import httpx
import pyarrow.parquet as pq
import pytest

from tests.contract.ingest.hand import Hand
from tests.harness.stacks import Stack, Stacks
from tests.harness.tcp_proxy import Fault, TcpProxy
from tests.pipeline.conftest import Pipeline
from tests.pipeline.own import expire_leases, landing, memory_bytes, own_worker
from tests.pipeline.producer import Event, Producer, wait_until_landed
from tests.pipeline.worker import Only

pytestmark = pytest.mark.xdist_group("pipeline")

Mode = Literal["refuse", "hang", "slow"]
MODES: tuple[Mode, ...] = ("refuse", "hang", "slow")
SLOW_S = 1.0
BATCH_S = 0.25
SEEN_S_MAX = 120  # until /status has to say what is wrong
SERVER_BYTES_MAX = 2**30  # the server and its staging process
DRAINED_S_MAX = 60
RECOVERED_S_MAX = 240  # a worker that was killed starts anew
KEYS = 500
REQUESTS_MAX = 500


@dataclass(slots=True)
class Sent:
    """What a producer has had acknowledged, and what it met on the way."""

    events: int = 0
    refusals: list[str] = field(default_factory=list)
    slowest_s: float = 0.0


class Feed:
    """A producer at a steady rate, in a thread."""

    def __init__(self, url: str, rate: int) -> None:
        self.space = f"n{uuid.uuid4().hex[:8]}"
        self.table = f"{self.space}.t"
        self.sent = Sent()
        self._producer = Producer(url, self.space)
        self._count = int(rate * BATCH_S)
        self._over = threading.Event()
        self._number = 0

    def run(self) -> None:
        due_s = time.monotonic()
        while not self._over.is_set():
            self._insist([self._event() for _ in range(self._count)])
            due_s += BATCH_S
            time.sleep(max(0.0, due_s - time.monotonic()))
        self._producer.client.close()

    def _event(self) -> Event:
        self._number += 1
        key = self._number % KEYS
        operation = "INSERT" if self._number <= KEYS else "UPDATE"
        return self._producer.event(operation, self.table, None, {"id": key, "n": self._number})

    def _insist(self, events: list[Event]) -> None:
        while True:
            began_s = time.monotonic()
            try:
                self._producer.send(events)
            except httpx.HTTPError as error:
                self.sent.refusals.append(f"{type(error).__name__}: {error}")
                time.sleep(0.1)
                continue
            self.sent.slowest_s = max(self.sent.slowest_s, time.monotonic() - began_s)
            self.sent.events += len(events)
            return

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        with ThreadPoolExecutor(1) as threads:
            done: Future[None] = threads.submit(self.run)
            try:
                yield
            finally:
                self._over.set()
            done.result()


@contextlib.contextmanager
def behind_a_proxy(
    stacks: Stacks, folder: Path, *, only: Only | None = None
) -> Iterator[tuple[Pipeline, TcpProxy]]:
    """Server, worker and readers reach the store through the proxy."""
    with TcpProxy(("127.0.0.1", stacks.s3.port), delay_s=SLOW_S) as proxy:
        prepared = stacks.prepared("postgres-s3", folder, {"CALVE_S3_ENDPOINT": proxy.endpoint})
        assert prepared.s3 is not None
        stack = replace(prepared, s3=replace(prepared.s3, endpoint=proxy.endpoint))
        stack.server.start()
        try:
            with own_worker(stack, only=only) as worker:
                yield Pipeline(stack, worker), proxy
        finally:
            stack.server.stop()


def begin(proxy: TcpProxy, mode: Mode) -> None:
    if mode == "refuse":
        proxy.refuse()
    else:
        proxy.fail(Fault.HANG if mode == "hang" else Fault.DELAY)


@dataclass(slots=True)
class Watched:
    """What /status and the kernel said during an outage."""

    stalled: list[str] = field(default_factory=list)
    memory_bytes_max: int = 0


def endure(pipeline: Pipeline, feed: Feed, mode: Mode, at_least_s: float) -> Watched:
    """Until the time is over and /status has said what is wrong (a slow store need not be wrong)."""
    seen = Watched()
    began_s, events = time.monotonic(), feed.sent.events
    while True:
        found = landing(pipeline.url)
        assert found is not None, "the server does not answer"
        if found["stalled"]:
            seen.stalled.append(found["stalled"])
        seen.memory_bytes_max = max(seen.memory_bytes_max, memory_bytes(pipeline.stack.server.pid))
        lasted_s = time.monotonic() - began_s
        if lasted_s >= at_least_s and (seen.stalled or mode == "slow") and feed.sent.events > events:
            return seen
        assert lasted_s < at_least_s + SEEN_S_MAX, f"{mode}: nothing said in {lasted_s:.0f} s: {found}"
        time.sleep(0.2)


def recover(pipeline: Pipeline) -> None:
    """Until /status is content: what it says of the next outage is then about that one."""
    until_s = time.monotonic() + RECOVERED_S_MAX
    while (found := landing(pipeline.url)) is None or found["stalled"]:
        assert time.monotonic() < until_s, f"it still says: {found}"
        time.sleep(0.2)


def require_all(pipeline: Pipeline, feed: Feed) -> None:
    total = feed.sent.events
    logged = pipeline.rows(
        f"SELECT count(*), count(DISTINCT _event_id), max(n), sum(n) FROM lake.{feed.table}__changes"
    )
    assert logged == [(total, total, total, total * (total + 1) // 2)]
    newest = {n % KEYS: n for n in range(1, total + 1)}
    mirror = pipeline.rows(f"SELECT id, n FROM lake.{feed.table} ORDER BY id")
    assert mirror == sorted(newest.items())


@pytest.mark.timeout(600)
def test_nothing_is_lost_while_the_store_is_away(stacks: Stacks, tmp_path: Path) -> None:
    with behind_a_proxy(stacks, tmp_path, only="landing") as (pipeline, proxy):
        feed = Feed(pipeline.url, 200)
        with feed.running():
            for mode in MODES:
                begin(proxy, mode)
                seen = endure(pipeline, feed, mode, 3)
                if mode == "hang":  # both at once
                    pipeline.worker.kill()
                    expire_leases(pipeline.stack, "leased")
                    pipeline.worker.start(wait=False)
                proxy.heal()
                _report(mode, feed, seen)
                recover(pipeline)
        drained_s = _drained_s(pipeline)
        print(f"{feed.sent.events} changes, drained {drained_s:.0f} s after the store was back")
        assert feed.sent.refusals == []
        require_all(pipeline, feed)


@pytest.mark.proof
@pytest.mark.parametrize("mode", MODES)
def test_five_minutes_without_a_store_are_drained_within_one(
    stacks: Stacks, tmp_path: Path, mode: Mode
) -> None:
    lasts_s = float(os.environ.get("CALVE_PROOF_OUTAGE_S", "300"))
    with behind_a_proxy(stacks, tmp_path) as (pipeline, proxy):
        feed = Feed(pipeline.url, 1_000)
        with feed.running():
            time.sleep(10)
            begin(proxy, mode)
            seen = endure(pipeline, feed, mode, lasts_s / 2)
            pipeline.worker.kill()
            pipeline.worker.start(wait=False)
            again = endure(pipeline, feed, mode, lasts_s / 2)
            proxy.heal()
            again.memory_bytes_max = max(seen.memory_bytes_max, again.memory_bytes_max)
            _report(mode, feed, again)
        drained_s = _drained_s(pipeline)
        print(f"{feed.sent.events} changes, drained {drained_s:.0f} s after the store was back")
        assert drained_s <= DRAINED_S_MAX
        assert feed.sent.refusals == []
        require_all(pipeline, feed)


def _report(mode: Mode, feed: Feed, seen: Watched) -> None:
    said = max(set(seen.stalled), key=seen.stalled.count) if seen.stalled else "nothing"
    print(
        f"\n{mode}: {feed.sent.events} acknowledged so far, slowest {feed.sent.slowest_s:.2f} s, "
        f"server RSS {seen.memory_bytes_max / 2**20:.0f} MiB at most; /status said: {said[:160]}"
    )
    assert seen.memory_bytes_max < SERVER_BYTES_MAX


def _drained_s(pipeline: Pipeline) -> float:
    began_s = time.monotonic()
    wait_until_landed(pipeline.url, timeout_s=400)
    return time.monotonic() - began_s


# -- the disk of the journal


class Filler:
    """A producer that fills the disk, and knows which of its events were acknowledged."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self.space = f"n{uuid.uuid4().hex[:8]}"
        self.producer = Producer(stack.url, self.space)
        self.acknowledged = 0  # it counts without gaps, so this is also the last number
        self.refusals: set[tuple[int, str]] = set()
        self._refused: list[Event] | None = None
        self._landed: list[int] = []

    def until_full(self, bytes_max: int) -> None:
        """No file of the server may grow beyond the limit, until some requests were refused."""
        pid, refusals = self._stack.server.pid, 0
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (bytes_max, hard))
        try:
            for _ in range(REQUESTS_MAX):
                refusals += not self._send()
                if refusals == 3:
                    return
        finally:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
        raise AssertionError(f"{REQUESTS_MAX} requests did not fill {bytes_max} bytes")

    def insist(self) -> None:
        """There is room again: what was refused is taken."""
        until_s = time.monotonic() + 30
        while not self._send():
            assert time.monotonic() < until_s, "the server does not recover"
            time.sleep(0.1)

    def _send(self) -> bool:
        batch = self._refused or self._batch()
        try:
            self.producer.send(batch)
        except httpx.HTTPStatusError as error:
            found = error.response.json()["error"]
            self.refusals.add((found["code"], found["type"]))
            self._refused = batch
            return False
        self._refused = None
        self.acknowledged += len(batch)
        return True

    def _batch(self) -> list[Event]:
        rows = ({"id": n, "text": "".join(uuid.uuid4().hex for _ in range(40))} for n in range(20))
        return [self.producer.event("INSERT", f"{self.space}.t", None, row) for row in rows]

    def landed(self) -> list[int]:
        """The numbers of all events that a worker got to land so far."""
        hand = Hand(self._stack.url)
        job = hand.lease(self.space)
        for name in job["tables"][0]["files"]:
            events = pq.read_table(name.removeprefix("file://"), columns=["_calve_event_id"])[0]
            self._landed += [int(event.rpartition(":")[2]) for event in events.to_pylist()]
        hand.land(job)
        return sorted(self._landed)


@pytest.mark.parametrize(
    "limits_kib", [(600, 1_000), pytest.param(tuple(range(200, 600, 4)), marks=pytest.mark.proof)]
)
def test_a_full_disk_gives_no_false_acknowledgement(
    stacks: Stacks, tmp_path: Path, limits_kib: tuple[int, ...]
) -> None:
    with stacks.started("embedded", tmp_path, {"CALVE_FRESHNESS_TARGET_MS": "0"}) as stack:
        filler = Filler(stack)
        for limit_kib in limits_kib:
            filler.until_full(limit_kib * 1024)
            filler.insist()
            stack.server.kill()
            stack.server.start()
            assert filler.landed() == list(range(1, filler.acknowledged + 1))
        filler.producer.client.close()
    # A COMMIT that failed half-way says that it does not know: to send again is how to find out.
    known = {refusal for refusal in filler.refusals if refusal != (500, "CommitStateUnknownException")}
    assert {status for status, _ in known} <= {429, 503, 507}
    print(
        f"{len(limits_kib)} times full, {filler.acknowledged} acknowledged and there once; "
        f"refused with {sorted(filler.refusals)}"
    )
