"""PostgreSQL goes away under writers and comes back: nothing lost, nothing doubled, healthy by itself.

`make proof` restarts it 50 times and cuts its connections 500 times.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psycopg
import pytest

from tests.concurrency.ledger import Ledger, verified
from tests.concurrency.writers import Writers
from tests.harness.errors import ComponentFailed
from tests.harness.postgres import PostgresServer
from tests.harness.stacks import Stack, Stacks

WRITERS = 8
# What must never be in an answer: statements, drivers, tracebacks.
INSIDE_STORY = re.compile(
    r"select |insert |update \w+ set|psycopg|sqlalchemy|postgres|traceback|127\.0\.0\.1", re.IGNORECASE
)


@pytest.fixture
def postgres_server() -> Iterator[PostgresServer]:
    with PostgresServer.started() as server:
        yield server


@contextlib.contextmanager
def _stack(stacks: Stacks, server: PostgresServer, folder: Path) -> Iterator[Stack]:
    settings = {
        "CALVE_DATABASE": server.database(),
        "CALVE_WAREHOUSE_ROOT": f"file://{folder}/warehouse",
    }
    with stacks.started("postgres-s3", folder / "stack", settings) as stack:
        yield stack


def _stop_at_once(server: PostgresServer) -> None:
    """An immediate shutdown: every session is cut where it is, and the next start recovers from the log."""
    child = server._child
    os.kill(child.pid, signal.SIGQUIT)
    with contextlib.suppress(ComponentFailed):
        child.wait(60)
    child.kill()


def _cut_sessions(stack: Stack) -> int:
    """End all sessions of the server, whatever they are doing: some of them are in the middle of COMMIT."""
    with psycopg.connect(stack.database.replace("+psycopg", ""), autocommit=True) as connection:
        ended = connection.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchone()
        assert ended is not None
        return int(ended[0])


def _wait_for_more_acks(writers: Writers, count: int, timeout_s: float = 60) -> None:
    before = len(Ledger.of(writers.lines()).acked)
    until = time.monotonic() + timeout_s
    while len(Ledger.of(writers.lines()).acked) < before + count:
        assert time.monotonic() < until, "no commit works any more"
        time.sleep(0.05)


def _require_discreet(ledger: Ledger) -> None:
    for line in (*ledger.answered, *ledger.refused, *ledger.load):
        assert not INSIDE_STORY.search(line["message"]), line


def _run(
    stacks: Stacks, server: PostgresServer, folder: Path, *, restarts: int, cuts: int, seed: int
) -> dict[str, int]:
    chance = random.Random(seed)
    with _stack(stacks, server, folder) as stack:
        writers = Writers(stack, folder, seed=seed)
        writers.start(WRITERS, outages=True, cut_share=0.02, abandon_share=0.1)
        faults = ["restart"] * restarts + ["cut"] * cuts
        chance.shuffle(faults)
        try:
            for fault in faults:
                time.sleep(chance.uniform(0.02, 0.3))
                if fault == "cut":
                    _cut_sessions(stack)
                else:
                    _stop_at_once(server)
                    server.start()
                    _wait_for_more_acks(writers, 3)
            _wait_for_more_acks(writers, WRITERS)
            writers.stop()
        finally:
            writers.kill()
        ready = httpx.get(f"{stack.url}/ready", timeout=30)
        assert ready.status_code == 200, ready.text
        _require_discreet(Ledger.of(writers.lines()))
        figures = verified(stack, writers)
        ledger = Ledger.of(writers.lines())
        return figures | {"5xx": len(ledger.answered)}


def test_a_restart_of_the_database_loses_nothing(
    stacks: Stacks, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    figures = _run(stacks, postgres_server, tmp_path, restarts=2, cuts=4, seed=20261116)
    print(f"\n2 restarts, 4 cuts: {figures}")


@pytest.mark.proof
@pytest.mark.timeout(7200)
def test_fifty_restarts_of_the_database_lose_nothing(
    stacks: Stacks, postgres_server: PostgresServer, tmp_path: Path, seed: int
) -> None:
    totals: dict[str, int] = {}
    for round_ in range(10):  # a fresh table each time: the documents stay short
        figures = _run(
            stacks, postgres_server, tmp_path / str(round_), restarts=5, cuts=50, seed=seed + round_
        )
        totals = {key: totals.get(key, 0) + value for key, value in figures.items()}
    print(f"\n50 restarts, 500 cuts, {WRITERS} writers, seed {seed}: {totals}")
