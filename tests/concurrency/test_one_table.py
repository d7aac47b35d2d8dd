"""Many processes write to one table over HTTP, and some answers are lost on the way: none lost, none doubled.

`make proof` runs 8 processes and 2,000 commits on each stack, with one and with two server processes.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.concurrency.ledger import Ledger, verified
from tests.concurrency.writers import Writers
from tests.harness.stacks import STACKS, StackName, Stacks

WRITERS = 8
CUT_SHARE = 0.05


def _run(stacks: Stacks, name: StackName, folder: Path, *, workers: int, commits: int, seed: int) -> None:
    with stacks.started(name, folder / "stack", {"CALVE_WORKERS": str(workers)}) as stack:
        writers = Writers(stack, folder, seed=seed)
        began_s = time.monotonic()
        writers.start(WRITERS, acked_max=commits // WRITERS, cut_share=CUT_SHARE)
        writers.wait()
        took_s = time.monotonic() - began_s
        figures = verified(stack, writers)
        ledger = Ledger.of(writers.lines())
        assert figures["acked"] == commits
        assert not ledger.unknown
        assert not ledger.load
        assert {line["status"] for line in ledger.refused} <= {409}  # a conflict is never a 5xx
        assert figures["replayed"] > 0
        print(
            f"\n{name}, {workers} server processes, {WRITERS} writers, seed {seed}: {figures}, "
            f"{commits / took_s:.1f} commits/s; rate of loss below {3 / commits:.4f} (95 %)"
        )


@pytest.mark.parametrize("name", STACKS)
def test_no_commit_is_lost_or_doubled(stacks: Stacks, tmp_path: Path, name: StackName) -> None:
    _run(stacks, name, tmp_path, workers=2, commits=160, seed=20261116)


@pytest.mark.proof
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("name", STACKS)
def test_of_two_thousand_commits_none_is_lost_or_doubled(
    stacks: Stacks, tmp_path: Path, name: StackName, workers: int, seed: int
) -> None:
    _run(stacks, name, tmp_path, workers=workers, commits=2000, seed=seed)
