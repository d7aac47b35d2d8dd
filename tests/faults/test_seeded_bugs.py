"""Each deliberate mistake of tests/faults/seeded_bugs.py is found by the check that is there to find it."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from catalog.errors import CommitFailed, Conflict, Invalid
from catalog.services import tables
from catalog.services import transactions as service
from tests.concurrency.edge import Edge
from tests.concurrency.ground import ASKED, Ground, create_tables, state, table
from tests.concurrency.phases import all_orders
from tests.concurrency.test_interleavings import run_orders
from tests.concurrency.test_late_writers import late_writers_are_refused
from tests.faults.seeded_bugs import BUGS, planted
from tests.faults.test_crash_points import crash_everywhere
from tests.faults.test_unknown_commits import an_unknown_commit_undoes_nothing
from tests.harness.rest import SCHEMA
from tests.harness.stacks import Stacks

Check = Callable[[Ground, Path, str], None]


def _orders(pair: str) -> Check:
    """Writers in lock-step."""

    def check(ground: Ground, _folder: Path, _bug: str) -> None:
        with pytest.MonkeyPatch.context() as patch:
            run_orders(ground, pair, all_orders()[::10], patch)

    return check


def _crashes(scenario: str) -> Check:
    """A crash at every failpoint, in a child with the same mistake."""

    def check(ground: Ground, folder: Path, bug: str) -> None:
        crash_everywhere(ground, scenario, folder, bug=bug)

    return check


def _unknown(ground: Ground, _folder: Path, _bug: str) -> None:
    with ground.opened() as catalog:
        an_unknown_commit_undoes_nothing(catalog, "commit", lands=True)


def _late(ground: Ground, _folder: Path, _bug: str) -> None:
    with ground.opened() as catalog:
        create_tables(catalog, "t")
    late_writers_are_refused(ground)


def a_key_is_for_one_operation(ground: Ground, _folder: Path, _bug: str) -> None:
    """A drop with the key of the create drops the table."""
    key = str(uuid.uuid4())
    with ground.opened() as catalog:
        create_tables(catalog)
        edge = Edge(catalog)
        made = edge.call("createTable", {"namespace": "db"}, {"name": "k", "schema": SCHEMA}, key=key)
        assert made.status_code == 200
        assert edge.call("dropTable", {"namespace": "db", "table": "k"}, key=key).status_code == 204
        assert edge.call("tableExists", {"namespace": "db", "table": "k"}).status_code == 404


def a_sibling_is_outside(ground: Ground, _folder: Path, _bug: str) -> None:
    """`warehouse-evil` begins like `warehouse` and is another place."""
    with ground.opened() as catalog:
        create_tables(catalog)
        for place in (f"{ground.root}-evil/t", f"{ground.root}evil"):
            request = {"name": "e", "schema": SCHEMA, "location": place}
            with pytest.raises(Invalid, match="outside the warehouse"):
                tables.create(catalog, state(catalog), ASKED, table("e"), request)


def protection_holds_in_a_publish(ground: Ground, _folder: Path, _bug: str) -> None:
    """Inside a transaction nobody knows of it; the publish does."""
    with ground.opened() as catalog:
        create_tables(catalog, "p")
        kept = tables.require(state(catalog), table("p")).uuid
        service.open_transaction(catalog, "main", "tester", "w")
        inside = state(catalog, "main~w")
        tables.drop(catalog, inside, ASKED, table("p"))
        tables.create(catalog, inside, ASKED, table("p"), {"name": "p", "schema": SCHEMA})
        tables.protect(catalog, state(catalog), table("p"), True)
        refused = False
        try:
            service.publish(catalog, "main", "tester", "w")
        except (CommitFailed, Conflict):
            refused = True
        assert refused
        assert tables.require(state(catalog), table("p")).uuid == kept


FOUND_BY: dict[str, Check] = {
    "update without the version predicate": _orders("two appends"),
    "number taken in its own transaction": _crashes("commit"),
    "rows of one commit set one by one": _crashes("two-table commit"),
    "idempotency key not scoped to the operation": a_key_is_for_one_operation,
    "location prefix compared without the slash": a_sibling_is_outside,
    "file written after the swap": _crashes("commit"),
    "replay detection off": _crashes("commit"),
    "late writers let in": _late,
    "first committer does not win": _orders("publish and append"),
    "files deleted when nobody knows": _unknown,
    "protection forgotten in a publish": protection_holds_in_a_publish,
}
# SQLite has one writer at a time: there the second transaction of this mistake would only wait for the first.
ON_POSTGRESQL = {"number taken in its own transaction"}


def _ground(stacks: Stacks, bug: str, folder: Path) -> Ground:
    return Ground.fresh(
        stacks, "postgres-s3" if bug in ON_POSTGRESQL else "embedded", folder, local_files=True
    )


@pytest.mark.parametrize("bug", BUGS)
def test_the_mistake_is_found(
    stacks: Stacks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bug: str
) -> None:
    ground = _ground(stacks, bug, tmp_path)
    planted(bug, monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)) as caught:
        FOUND_BY[bug](ground, tmp_path, bug)
    print(f"\n{bug}: {str(caught.value)[:200]}")


@pytest.mark.parametrize("bug", BUGS)
def test_without_the_mistake_the_check_is_content(stacks: Stacks, tmp_path: Path, bug: str) -> None:
    FOUND_BY[bug](_ground(stacks, bug, tmp_path), tmp_path, "")
