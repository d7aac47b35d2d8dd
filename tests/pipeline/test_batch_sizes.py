"""The same rows for small and large batches, and a driver whose memory does not grow with them.

CALVE_PROOF_ROWS is the number of rows of the long forms.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.harness.stacks import Stack, Stacks
from tests.pipeline.cluster import stack_with_cluster
from tests.pipeline.conftest import Pipeline
from tests.pipeline.own import own_pipeline
from tests.pipeline.producer import Producer, flush
from tests.pipeline.worker import LOCAL, Master, Worker

REQUEST_ROWS = 5_000
DRIVER_GROWTH_BYTES_MAX = 300 * 2**20
ONE_BATCH = {"CALVE_BATCH_EVENTS_MAX": "100000000"}
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def rows_of_proof(default: int) -> int:
    return int(os.environ.get("CALVE_PROOF_ROWS", str(default)))


def send(url: str, table: str, rows: int) -> None:
    """Insert all rows, then change every tenth of them and delete every hundredth."""
    producer = Producer(url, f"sizes-{table}")
    for first in range(0, rows, REQUEST_ROWS):
        numbers = range(first, min(first + REQUEST_ROWS, rows))
        events = [producer.event("INSERT", table, None, {"id": n, "name": f"row {n}"}) for n in numbers]
        events += [
            producer.event("UPDATE", table, {"id": n}, {"id": n, "name": "new"})
            for n in numbers
            if n % 10 == 0
        ]
        events += [producer.event("DELETE", table, {"id": n}, None) for n in numbers if n % 100 == 0]
        producer.insist(events)
    producer.client.close()


def require_rows(pipeline: Pipeline, table: str, rows: int) -> None:
    wanted = f"""SELECT i, CASE WHEN i % 10 = 0 THEN 'new' ELSE 'row ' || i END
                 FROM range({rows}) AS r(i) WHERE i % 100 <> 0"""
    found = f"SELECT id, name FROM lake.{table}"
    for one, other in ((wanted, found), (found, wanted)):
        assert pipeline.rows(f"SELECT * FROM ({one} EXCEPT ALL {other}) LIMIT 10") == []
    changes = rows + -(-rows // 10) + -(-rows // 100)
    assert pipeline.rows(f"SELECT count(*) FROM lake.{table}__changes") == [(changes,)]


def require_one_batch(url: str, table: str) -> None:
    """Each batch is a snapshot of the changes."""
    namespace, _, name = table.partition(".")
    path = f"/v1/main/namespaces/{namespace}/tables/{name}__changes"
    loaded = httpx.get(f"{url}{path}", timeout=60).raise_for_status().json()
    assert len(loaded["metadata"]["snapshots"]) == 1


def prove_sizes(stack: Stack, folder: Path, rows: int, master: Master = LOCAL) -> None:
    """All rows are in the journal before the worker starts, so that they are one batch."""
    for size in (10, rows):
        send(stack.url, f"sizes.t{size}", size)
    worker = Worker(stack, folder / "worker", master=master, only="landing")
    try:
        worker.start()
        flush(stack.url, timeout_s=3_600)
        for size in (10, rows):
            require_rows(Pipeline(stack, worker), f"sizes.t{size}", size)
            require_one_batch(stack.url, f"sizes.t{size}")
    finally:
        worker.kill()


@pytest.mark.timeout(600)
def test_a_small_and_a_large_batch_have_the_same_rows(stacks: Stacks, tmp_path: Path) -> None:
    with stacks.started("embedded", tmp_path / "stack", ONE_BATCH) as stack:
        prove_sizes(stack, tmp_path, 50_000)


@pytest.mark.proof
def test_a_million_rows_on_this_machine(stacks: Stacks, tmp_path: Path) -> None:
    with stacks.started("postgres-s3", tmp_path / "stack", ONE_BATCH) as stack:
        prove_sizes(stack, tmp_path, rows_of_proof(1_000_000))


@pytest.mark.proof
def test_a_million_rows_on_a_cluster(stacks: Stacks, tmp_path: Path) -> None:
    with stack_with_cluster(stacks, tmp_path, ONE_BATCH) as (stack, cluster):
        prove_sizes(stack, tmp_path, rows_of_proof(1_000_000), cluster.master)
        assert min(cluster.executors.values()) >= 1


@contextlib.contextmanager
def highest_rss(pid: int) -> Iterator[list[int]]:
    """The first and the highest memory, in bytes, of the driver's Python process in the block."""
    seen = [_rss_bytes(pid)] * 2
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.2):
            seen[1] = max(seen[1], _rss_bytes(pid))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def _rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES


@pytest.mark.proof
def test_the_memory_of_the_driver_is_bounded_while_rows_land_on_s3(stacks: Stacks, tmp_path: Path) -> None:
    rows = rows_of_proof(10_000_000)
    with own_pipeline(stacks, "postgres-s3", tmp_path, only="landing") as pipeline:
        send(pipeline.url, "sizes.small", 10)
        flush(pipeline.url)
        with highest_rss(pipeline.worker.pid) as seen:
            send(pipeline.url, "sizes.large", rows)
            flush(pipeline.url, timeout_s=7_200)
        require_rows(pipeline, "sizes.large", rows)
    before, highest = seen
    print(f"{rows} rows: the driver had {before >> 20} MB before and at most {highest >> 20} MB")
    assert highest - before < DRIVER_GROWTH_BYTES_MAX
