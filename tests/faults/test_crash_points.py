"""A crash at every step of a write, on both stacks: all of it or nothing, and a retry is answered right."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from catalog import errors, faults
from catalog.services.catalog import Catalog
from tests.concurrency.catalog_address import CatalogAddress, gaps, problems
from tests.faults.crashes import SCENARIOS, Plan, Trial, commits_in_history, die_at, seen
from tests.harness.stacks import STACKS, StackName, Stacks

POINTS_MAX = 60
# Passing one of these means that COMMIT has been answered.
AFTER_COMMIT = {"swap.committed", "write.before-answer"}


def crash_everywhere(
    address: CatalogAddress, name: str, folder: Path, *, statements: bool = False, bug: str = ""
) -> list[str]:
    """Run the scenario with a crash at each place in turn until a run is clean; the places in order."""
    passed: list[str] = []
    for passes in range(1, POINTS_MAX):
        trial = Trial(passes, folder / f"{uuid.uuid4().hex}.trace", statements, bug)
        with address.opened() as catalog:
            plan = SCENARIOS[name].prepare(catalog, uuid.uuid4().hex[:8])
            before = seen(catalog, plan, SCENARIOS[name].within(plan))
        died = die_at(name, address, plan, trial)
        passed = trial.trace.read_text().split()
        with address.opened() as catalog:  # as a server that was started again
            _require_all_or_nothing(catalog, name, plan, before, passed, died=died is not None)
            _require_right_retry(catalog, name, plan)
        if died is None:
            return passed
    raise AssertionError(f"{name} passed more than {POINTS_MAX} failpoints")


def _require_all_or_nothing(
    catalog: Catalog, name: str, plan: Plan, before: object, passed: list[str], *, died: bool
) -> None:
    found = seen(catalog, plan, SCENARIOS[name].within(plan))
    at = passed[-1] if passed else "the start"
    landed = not died or bool(AFTER_COMMIT & set(passed))
    assert found == (plan["after"] if landed else before), f"{name} killed at {at}"
    assert problems(catalog) == [], f"{name} killed at {at}"
    assert gaps(catalog) == [], f"{name} killed at {at}"


def _require_right_retry(catalog: Catalog, name: str, plan: Plan) -> None:
    """The same request again, without its key: answered as if it had worked at once, and done only once."""
    scenario = SCENARIOS[name]
    plan = plan | {"record": None}
    landed = seen(catalog, plan, scenario.within(plan)) == plan["after"]
    if landed and "again" in plan:  # not detectable as a replay without its key: refused, and nothing is done
        with pytest.raises(getattr(errors, plan["again"])):
            scenario.run(catalog, plan)
    else:
        try:
            answer = scenario.run(catalog, plan)
        except errors.CatalogError as refused:
            raise AssertionError(f"the retry of {name} was refused: {refused!r}") from refused
        if name == "publish":
            assert answer == commits_in_history(catalog, plan)[0]
    assert seen(catalog, plan, scenario.within(plan)) == plan["after"]
    assert len(commits_in_history(catalog, plan)) == (0 if scenario.within(plan) != "main" else 1)
    assert problems(catalog) == []
    assert gaps(catalog) == []


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("name", STACKS)
def test_a_crash_at_every_step_leaves_all_or_nothing(
    stacks: Stacks, tmp_path: Path, name: StackName, scenario: str
) -> None:
    address = CatalogAddress.fresh(stacks, name, tmp_path)
    passed = crash_everywhere(address, scenario, tmp_path)
    print(f"\n{name}, {scenario}: {len(passed)} crash points, then a clean run")
    assert {"swap.begun", "swap.before-commit", "swap.committed"} <= set(passed)


@pytest.mark.proof
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("name", STACKS)
def test_a_crash_at_every_statement_leaves_all_or_nothing(
    stacks: Stacks, tmp_path: Path, name: StackName, scenario: str
) -> None:
    address = CatalogAddress.fresh(stacks, name, tmp_path)
    passed = crash_everywhere(address, scenario, tmp_path, statements=True)
    print(f"\n{name}, {scenario}: {len(passed)} crash points with every statement, then a clean run")
    assert passed.count("statement") > 2


def test_the_scenarios_pass_every_failpoint(stacks: Stacks, tmp_path: Path) -> None:
    """A failpoint that nothing passes tests nothing."""
    address = CatalogAddress.fresh(stacks, "embedded", tmp_path)
    passed: set[str] = set()
    for name, scenario in SCENARIOS.items():
        trace = tmp_path / "trace"
        with address.opened() as catalog:
            plan = scenario.prepare(catalog, uuid.uuid4().hex[:8])
        assert die_at(name, address, plan, Trial(1_000_000, trace)) is None
        passed |= set(trace.read_text().split())
    assert passed == set(faults.POINTS)
