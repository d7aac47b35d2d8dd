"""Two writers in every order of their steps, on SQLite and on PostgreSQL: as if one came after the other.

The two have a catalog each, as two server processes would: nothing but the database keeps them apart. `make
test` runs all 252 orders of two appends, and a part of them for the other pairs; `make proof` runs all.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from catalog.services import writes
from tests.concurrency.catalog_address import CatalogAddress, gaps, problems
from tests.concurrency.lock_step import Steps, all_orders, lanes
from tests.concurrency.races import PAIRS, observed, require_linear
from tests.harness.stacks import STACKS, StackName, Stacks

ORDERS_IN_SHORT = 8
STEPS_A_WRITER = 5


def run_orders(
    address: CatalogAddress, pair: str, orders: Iterable[tuple[int, ...]], patch: pytest.MonkeyPatch
) -> dict[str, int]:
    """Run the pair in each order; AssertionError at the first that cannot be explained."""
    patch.setattr(writes, "BACKOFF_MAX_S", 0.0)  # a lost race is tried again at once
    ended: dict[str, int] = {}
    with address.opened() as catalog, lanes(address) as both:
        for place, order in enumerate(orders):
            ops, names = PAIRS[pair](catalog, str(place))
            before = observed(catalog, names)
            works = [op.on(lane.catalog) for op, lane in zip(ops, both, strict=True)]
            with pytest.MonkeyPatch.context() as held:
                outcomes = Steps(both, works).run(order, held)
            try:
                require_linear(ops, outcomes, before, observed(catalog, names))
            except AssertionError as violation:
                raise AssertionError(f"{pair} in the order {order}: {violation}") from violation
            for outcome in outcomes:
                name = type(outcome.error).__name__ if outcome.error else "done"
                ended[name] = ended.get(name, 0) + 1
        assert problems(catalog) == []
        assert gaps(catalog) == []
    return ended


def test_there_are_252_orders() -> None:
    orders = all_orders()
    assert len(orders) == len(set(orders)) == 252
    assert all(order.count(0) == order.count(1) == STEPS_A_WRITER for order in orders)


@pytest.mark.parametrize("name", STACKS)
def test_two_appends_in_every_order(
    stacks: Stacks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: StackName
) -> None:
    address = CatalogAddress.fresh(stacks, name, tmp_path, local_files=True)
    ended = run_orders(address, "two appends", all_orders(), monkeypatch)
    print(f"\n{name}: 252 orders: {ended}")
    assert ended == {"done": 252, "RequirementFailed": 252}


@pytest.mark.parametrize("pair", [pair for pair in PAIRS if pair != "two appends"])
@pytest.mark.parametrize("name", STACKS)
def test_any_two_writes_in_some_orders(
    stacks: Stacks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: StackName, pair: str
) -> None:
    address = CatalogAddress.fresh(stacks, name, tmp_path, local_files=True)
    orders = random.Random(20261116).sample(all_orders(), ORDERS_IN_SHORT)
    run_orders(address, pair, orders, monkeypatch)


@pytest.mark.proof
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("name", STACKS)
def test_any_two_writes_in_every_order(
    stacks: Stacks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: StackName, pair: str
) -> None:
    address = CatalogAddress.fresh(stacks, name, tmp_path, local_files=True)
    ended = run_orders(address, pair, all_orders(), monkeypatch)
    print(f"\n{name}, {pair}: 252 orders: {ended}")
