"""Producers that send as quickly as they are answered: one process and one connection for each.

Their bodies are made before the clock starts. A producer goes through its bodies again and again, each time
as another source, so that nothing is a duplicate and memory stays small. Every answer is checked.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection as Pipe
from multiprocessing.synchronize import Barrier

from bench.catalog.client import Connection, WrongAnswer
from bench.ingest import events

TABLE = "bench.orders"
START_S = 120.0
BODIES_BYTES = 8 * 2**20  # of prepared bodies in each process
BODIES_MAX = 2_000


@dataclass(frozen=True, slots=True)
class Spec:
    """What one producer does. `accepted`: the answer must say that all was taken; else a 202 will do."""

    port: int
    producer: int
    events: int  # of one request
    seconds: float
    run: str  # a name that no other run has
    accepted: bool = True


@dataclass
class Sent:
    """What the producers of one run noted."""

    seconds: float = 0.0
    events: int = 0
    body_bytes: int = 0
    latencies_ms: list[float] = field(default_factory=list)
    client_cpu_s: float = 0.0


def bodies(size: int) -> list[bytes]:
    """Bodies of `size` inserts each, numbered on and on."""
    one = events.body(events.inserts(TABLE, 0, size))
    count = max(2, min(BODIES_MAX, BODIES_BYTES // len(one)))
    return [events.body(events.inserts(TABLE, number * size, size)) for number in range(count)]


def produce(spec: Spec, started: Barrier, to: Pipe) -> None:
    """One producer, in a process of its own."""
    prepared = bodies(spec.events)
    wanted = b'"eventsAccepted":%d,' % spec.events if spec.accepted else b""
    sent = Sent()
    with Connection(spec.port) as connection:
        started.wait(START_S)
        cpu, began = time.process_time(), time.perf_counter()
        until = began + spec.seconds
        for body, headers in _endless(spec, prepared):
            asked = time.perf_counter()
            if asked >= until:
                break
            answer = connection.send("POST", "/cdc", body, headers)
            sent.latencies_ms.append((time.perf_counter() - asked) * 1000)
            answer.expect(202, wanted)
            sent.body_bytes += len(body)
        sent.seconds, sent.client_cpu_s = time.perf_counter() - began, time.process_time() - cpu
    sent.events = len(sent.latencies_ms) * spec.events
    to.send(sent)


def _endless(spec: Spec, prepared: list[bytes]) -> Iterator[tuple[bytes, dict[str, str]]]:
    turn = 0
    while True:
        headers = {"X-Source-Id": f"{spec.run}-{spec.producer}-{turn}"}
        for body in prepared:
            yield body, headers
        turn += 1


def in_processes(specs: list[Spec]) -> Sent:
    """All at once; timed from the common start to the end of the last."""
    context = multiprocessing.get_context("spawn")
    started = context.Barrier(len(specs))
    pipes, children = [], []
    for spec in specs:
        mine, theirs = context.Pipe(duplex=False)
        children.append(context.Process(target=produce, args=(spec, started, theirs), daemon=True))
        pipes.append(mine)
    whole = Sent()
    with _running(children):
        for pipe, child in zip(pipes, children, strict=True):
            whole = _together(whole, _received(pipe, child))
    return whole


@contextlib.contextmanager
def _running(children: list[multiprocessing.context.SpawnProcess]) -> Iterator[None]:
    for child in children:
        child.start()
    try:
        yield
    finally:
        for child in children:
            child.join(5)
            if child.is_alive():
                child.kill()


def _received(pipe: Pipe, child: multiprocessing.context.SpawnProcess) -> Sent:
    while not pipe.poll(0.5):
        if not child.is_alive() and not pipe.poll(0):
            raise WrongAnswer(f"a producer ended with {child.exitcode}; its reason is above")
    sent: Sent = pipe.recv()
    return sent


def _together(one: Sent, other: Sent) -> Sent:
    return Sent(
        max(one.seconds, other.seconds),
        one.events + other.events,
        one.body_bytes + other.body_bytes,
        one.latencies_ms + other.latencies_ms,
        one.client_cpu_s + other.client_cpu_s,
    )
