"""Kept moments and expiry against a model: every kept moment stays readable, nothing else stays."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.concurrency.catalog_address import CatalogAddress
from tests.harness.stacks import STACKS, StackName, Stacks
from tests.maintenance.machine import Clock, Lake

ACTIONS = (
    ("append_many", 6),
    ("append", 6),
    ("wait", 8),
    ("maintain", 6),
    ("tag", 1),
    ("untag", 1),
    ("evolve", 1),
    ("roll_back", 1),
    ("rename", 1),
    ("drop_and_restore", 1),
    ("create", 1),
    ("open_transaction", 2),
    ("publish", 2),
    ("pin", 2),
)


@pytest.mark.parametrize("stack_name", STACKS)
@pytest.mark.parametrize("seed", range(3))
def test_kept_moments_stay_readable_and_nothing_else_stays(
    seed: int, stack_name: StackName, stacks: Stacks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(seed, 60, stack_name, stacks, tmp_path, monkeypatch)


@pytest.mark.proof
@pytest.mark.parametrize("stack_name", STACKS)
@pytest.mark.parametrize("seed", range(100, 120))
def test_kept_moments_through_long_histories(
    seed: int, stack_name: StackName, stacks: Stacks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(seed, 150, stack_name, stacks, tmp_path, monkeypatch)


def run(
    seed: int,
    steps: int,
    stack_name: StackName,
    stacks: Stacks,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    monkeypatch.setattr(time, "time_ns", clock)
    names, weights = zip(*ACTIONS, strict=True)
    with CatalogAddress.fresh(stacks, stack_name, folder, local_files=True).opened() as catalog:
        lake = Lake(catalog, clock, random.Random(seed))
        for action in lake.random.choices(names, weights, k=steps):
            getattr(lake, action)()
        lake.maintain()
