"""Kept moments and expiry against a model: every kept moment stays readable, nothing else stays."""

from __future__ import annotations

import itertools
import random
import time
from pathlib import Path

import pytest

from catalog.names import WarehouseRef
from catalog.services.catalog import Limits
from tests.concurrency.catalog_address import CatalogAddress
from tests.harness.stacks import STACKS, StackName, Stacks
from tests.maintenance.machine import Clock, Lake

HOUR_MS = 3_600_000
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
    ("read_number", 2),
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


@pytest.mark.parametrize("stack_name", STACKS)
def test_a_moment_that_is_read_by_its_number_is_kept_for_its_reader(
    stack_name: StackName, stacks: Stacks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the last of a minute and not of an hour, so the default policy keeps it for 6 hours."""
    clock = Clock()
    monkeypatch.setattr(time, "time_ns", clock)
    address = CatalogAddress.fresh(stacks, stack_name, tmp_path, local_files=True)
    with address.opened() as catalog, address.opened(Limits(pin_s=0)) as unpinned:
        lake = Lake(catalog, unpinned, clock, random.Random(1))
        for _ in range(3):
            clock.advance(61)
            lake.append()
        pairs = itertools.pairwise(lake.moments[-3:])
        read = next(one[0] for one, after in pairs if one[1] // HOUR_MS == after[1] // HOUR_MS)
        clock.advance(5.9 * 3600)
        lake.maintain()
        assert catalog.state(WarehouseRef("main", at=str(read))).number() == read
        lake.note_pin(read)
        clock.advance(1800)
        lake.maintain()
        assert catalog.state(WarehouseRef("main", at=str(read))).number() == read


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
    address = CatalogAddress.fresh(stacks, stack_name, folder, local_files=True)
    with address.opened() as catalog, address.opened(Limits(pin_s=0)) as unpinned:
        lake = Lake(catalog, unpinned, clock, random.Random(seed))
        for action in lake.random.choices(names, weights, k=steps):
            getattr(lake, action)()
        lake.maintain()
