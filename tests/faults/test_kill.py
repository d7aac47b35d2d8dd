"""`kill -9` of the server at random moments under commits: what was answered is there after each restart.

`make proof` kills 50 times on each stack.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.concurrency.catalog_address import CatalogAddress, problems
from tests.concurrency.ledger import Ledger, verified
from tests.concurrency.writers import Writers
from tests.harness.rest import Rest
from tests.harness.stacks import STACKS, Stack, StackName, Stacks

WRITERS = 4
KILLS_A_TABLE = 10  # then a fresh one, so that the time goes into commits and not into long documents


def _answered_commits_are_there(writers: Writers) -> int:
    """The ledgers are read before the tables, so whatever they say was answered must be found."""
    acked = Ledger.of(writers.lines()).acked
    rest = Rest(writers.stack.url)
    for table in writers.tables:
        ids = {
            snapshot["snapshot-id"]
            for snapshot in rest.load(writers.namespace, table)["metadata"]["snapshots"]
        }
        lost = [line for line in acked if table in line["ids"] and line["ids"][table] not in ids]
        assert not lost, f"{len(lost)} answered commits are lost after a kill: {lost[:3]}"
    return len(acked)


def _check_finds_nothing(stack: Stack) -> None:
    ended = stack.server.command("check")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.strip().endswith(", 0 problems"), ended.stdout


def _killed(stack: Stack, folder: Path, *, kills: int, seed: int) -> dict[str, int]:
    chance = random.Random(seed)
    writers = Writers(stack, folder, seed=seed)
    writers.start(WRITERS, abandon_share=0.5, cut_share=0.02, pause_s=0.02)
    try:
        for _ in range(kills):
            time.sleep(chance.uniform(0.15, 1.2))
            stack.server.kill()
            stack.server.start()
            _answered_commits_are_there(writers)
            with CatalogAddress.of(stack).opened() as catalog:
                assert problems(catalog) == []
        writers.stop()
    finally:
        writers.kill()
    return verified(stack, writers)


def _run(stacks: Stacks, name: StackName, folder: Path, *, kills: int, workers: int, seed: int) -> None:
    totals: dict[str, int] = {}
    with stacks.started(name, folder / "stack", {"CALVE_WORKERS": str(workers)}) as stack:
        for first in range(0, kills, KILLS_A_TABLE):
            figures = _killed(stack, folder, kills=min(KILLS_A_TABLE, kills - first), seed=seed + first)
            totals = {key: totals.get(key, 0) + value for key, value in figures.items()}
            _check_finds_nothing(stack)
    assert totals["acked"] > 0
    print(f"\n{name}, {kills} kills, {WRITERS} writers, seed {seed}: {totals}")


@pytest.mark.parametrize("name", STACKS)
def test_answered_commits_survive_kills(stacks: Stacks, tmp_path: Path, name: StackName) -> None:
    _run(stacks, name, tmp_path, kills=3, workers=1, seed=20261116)


@pytest.mark.proof
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", STACKS)
def test_answered_commits_survive_fifty_kills(
    stacks: Stacks, tmp_path: Path, name: StackName, seed: int
) -> None:
    _run(stacks, name, tmp_path, kills=50, workers=1, seed=seed)
