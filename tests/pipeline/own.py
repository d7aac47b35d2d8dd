"""A server and a worker for one test alone: they may be killed, starved and cut off."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import httpx
import sqlalchemy as sa

from tests.harness.process import children
from tests.harness.stacks import Stack, StackName, Stacks
from tests.pipeline.conftest import Pipeline
from tests.pipeline.worker import Only, Worker


@contextlib.contextmanager
def own_pipeline(
    stacks: Stacks,
    name: StackName,
    folder: Path,
    settings: Mapping[str, str] | None = None,
    *,
    only: Only | None = None,
) -> Iterator[Pipeline]:
    with stacks.started(name, folder, settings) as stack, own_worker(stack, only=only) as worker:
        yield Pipeline(stack, worker)


@contextlib.contextmanager
def own_worker(stack: Stack, *, only: Only | None = None) -> Iterator[Worker]:
    worker = Worker(stack, stack.server.folder / "worker", only=only)
    try:
        worker.start()
        yield worker
    finally:
        worker.kill()


def expire_leases(stack: Stack, state: Literal["staging", "leased"]) -> None:
    """Let the leases of a server that was killed (`staging`), or of a worker (`leased`), be over at once."""
    engine = sa.create_engine(stack.database)
    with engine.begin() as connection:
        connection.execute(
            sa.text("UPDATE landing_jobs SET lease_ends_ms = 0 WHERE state = :state"), {"state": state}
        )
    engine.dispose()


def landing(url: str) -> dict[str, Any] | None:
    """The landing side of /status; None while the server does not answer."""
    try:
        answer = httpx.get(f"{url}/status", timeout=10)
    except httpx.HTTPError:
        return None
    found: dict[str, Any] | None = answer.json()["landing"] if answer.status_code == 200 else None
    return found


def workers_seen(url: str) -> set[str]:
    """The names of all workers that ever asked; each start has a new one."""
    found = landing(url)
    return {worker["worker"] for worker in found["workers"]} if found is not None else set()


def wait_until_at_work(url: str, *, dead: Collection[str], timeout_s: float) -> None:
    """Until a worker that lives holds a job; the lease of a dead one lasts for a while."""
    until_s = time.monotonic() + timeout_s
    while time.monotonic() < until_s:
        found = landing(url)
        held = [job["worker"] for job in found["jobs"] if job["state"] == "leased"] if found else []
        if any(worker not in dead for worker in held):
            return
        time.sleep(0.05)
    raise AssertionError(f"no worker has taken a job within {timeout_s} s")


def memory_bytes(pid: int) -> int:
    """What a process holds now (RSS), its children included."""
    total = 0
    for each in (pid, *children(pid)):
        with contextlib.suppress(OSError):
            pages = int(Path(f"/proc/{each}/statm").read_text().split()[1])
            total += pages * 4096
    return total
