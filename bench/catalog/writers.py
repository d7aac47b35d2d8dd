"""Clients that write: one thread and one connection for each, all starting at the same moment.

They are threads of one process because they wait almost always; what they compute for a commit is well below
a tenth of what any of the servers needs for it. `Run.client_cpu_s` says how much it was.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from bench.catalog.client import Answer, Connection

BARRIER_TIMEOUT_S = 60.0


class Writer:
    """What one client sends, and what it noted."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.latencies_s: list[float] = []
        self.conflicts = 0
        self.unknown = 0  # answers that leave open whether it happened

    def send(self, method: str, path: str, body: bytes | None = None) -> Answer:
        return self.connection.send(method, path, body)

    def done(self, began: float) -> None:
        self.latencies_s.append(time.perf_counter() - began)


Job = Callable[[Writer], None]


@dataclass
class Run:
    seconds: float = 0.0
    client_cpu_s: float = 0.0
    latencies_s: list[float] = field(default_factory=list)
    conflicts: int = 0
    unknown: int = 0

    def add(self, other: Run) -> None:
        self.seconds += other.seconds
        self.client_cpu_s += other.client_cpu_s
        self.latencies_s += other.latencies_s
        self.conflicts += other.conflicts
        self.unknown += other.unknown


def in_parallel(port: int, jobs: list[Job], headers: dict[str, str] | None = None) -> Run:
    """Run every job on a connection of its own; timed from the start of all to the end of the last."""
    barrier = threading.Barrier(len(jobs) + 1)

    def work(job: Job) -> Writer:
        with Connection(port, headers) as connection:
            writer = Writer(connection)
            barrier.wait(BARRIER_TIMEOUT_S)
            job(writer)
            return writer

    with ThreadPoolExecutor(len(jobs)) as pool:
        futures = [pool.submit(work, job) for job in jobs]
        barrier.wait(BARRIER_TIMEOUT_S)
        began, cpu = time.perf_counter(), time.process_time()
        writers = [future.result() for future in futures]
        run = Run(time.perf_counter() - began, time.process_time() - cpu)
    for writer in writers:
        run.latencies_s += writer.latencies_s
        run.conflicts += writer.conflicts
        run.unknown += writer.unknown
    return run
