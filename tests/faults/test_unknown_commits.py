"""COMMIT was carried out and its answer was lost: the outcome is "unknown", and nothing may be undone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.engine import RootTransaction
from sqlalchemy.exc import OperationalError

from catalog.errors import CommitStateUnknown, Unavailable
from catalog.services import transactions
from catalog.services.catalog import Catalog
from catalog.store.database import Database
from tests.concurrency.catalog_address import CatalogAddress, gaps, problems
from tests.faults.crashes import SCENARIOS, commits_in_history, seen
from tests.harness.stacks import STACKS, Stacks


@pytest.fixture(params=STACKS)
def address(request: pytest.FixtureRequest, stacks: Stacks, tmp_path: Path) -> CatalogAddress:
    return CatalogAddress.fresh(stacks, request.param, tmp_path, local_files=True)


@pytest.fixture
def catalog(address: CatalogAddress) -> Iterator[Catalog]:
    with address.opened() as opened:
        yield opened


def commits_without_answers(patch: pytest.MonkeyPatch, *, lands: bool) -> None:
    """From now on every COMMIT loses its answer, after it was carried out or before."""
    committed = RootTransaction.commit

    def commit(self: RootTransaction) -> None:
        if lands:
            committed(self)
        raise OperationalError("COMMIT", {}, Exception("server closed the connection unexpectedly"))

    patch.setattr(RootTransaction, "commit", commit)


def an_unknown_commit_undoes_nothing(catalog: Catalog, name: str, *, lands: bool) -> None:
    scenario = SCENARIOS[name]
    plan = scenario.prepare(catalog, f"{name.replace(' ', '')}{int(lands)}")
    before = seen(catalog, plan, "main")
    with pytest.MonkeyPatch.context() as patch:
        commits_without_answers(patch, lands=lands)
        with pytest.raises(CommitStateUnknown):
            scenario.run(catalog, plan)
    assert seen(catalog, plan, "main") == (plan["after"] if lands else before)
    assert problems(catalog) == [], "a file that a row points to was deleted"
    if not (lands and "again" in plan):
        # The retry of a client that looked, or that did not. Without its key, which would answer for it.
        scenario.run(catalog, plan | {"record": None})
    assert seen(catalog, plan, "main") == plan["after"]
    assert len(commits_in_history(catalog, plan)) == 1
    assert problems(catalog) == []
    assert gaps(catalog) == []


@pytest.mark.parametrize("lands", [True, False], ids=["it landed", "it did not"])
@pytest.mark.parametrize("name", ["commit", "two-table commit", "create", "publish"])
def test_an_unknown_commit_undoes_nothing(catalog: Catalog, name: str, lands: bool) -> None:
    an_unknown_commit_undoes_nothing(catalog, name, lands=lands)


def test_a_full_pool_is_a_refusal_and_no_accident(
    stacks: Stacks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All connections are taken: nothing was begun, so the client may simply try again."""
    address = CatalogAddress.fresh(stacks, "postgres-s3", tmp_path, local_files=True)
    monkeypatch.setattr("catalog.store.database.BUSY_TIMEOUT_S", 0.1)
    database = Database(address.database, pool_size=1)
    with database.engine.connect(), pytest.raises(Unavailable):
        database.write(lambda connection: None)
    database.close()


def test_a_publish_whose_answer_was_lost_answers_its_number(catalog: Catalog) -> None:
    scenario = SCENARIOS["publish"]
    plan = scenario.prepare(catalog, "lost")
    with pytest.MonkeyPatch.context() as patch:
        commits_without_answers(patch, lands=True)
        with pytest.raises(CommitStateUnknown):
            scenario.run(catalog, plan)
    number, touched = transactions.publish(catalog, "main", "tester", plan["transaction"])
    assert [number] == commits_in_history(catalog, plan)
    assert touched == []
