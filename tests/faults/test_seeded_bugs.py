"""Each deliberate mistake of tests/faults/seeded_bugs.py is found by the check that is there to find it."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from catalog.errors import CommitFailed, Conflict, Invalid
from catalog.services import tables
from catalog.services import transactions as service
from tests.concurrency.catalog_address import CONTEXT, CatalogAddress, create_tables, state, table
from tests.concurrency.in_process_client import InProcessClient
from tests.concurrency.lock_step import all_orders
from tests.concurrency.test_interleavings import run_orders
from tests.concurrency.test_late_writers import late_writers_are_refused
from tests.faults.seeded_bugs import BUGS, planted
from tests.faults.test_crash_points import crash_everywhere
from tests.faults.test_unknown_commits import an_unknown_commit_undoes_nothing
from tests.harness.rest import SCHEMA
from tests.harness.stacks import Stacks

Check = Callable[[CatalogAddress, Path, str], None]


def _orders(pair: str) -> Check:
    """Writers in lock-step."""

    def check(address: CatalogAddress, _folder: Path, _bug: str) -> None:
        with pytest.MonkeyPatch.context() as patch:
            run_orders(address, pair, all_orders()[::10], patch)

    return check


def _crashes(scenario: str) -> Check:
    """A crash at every failpoint, in a child with the same mistake."""

    def check(address: CatalogAddress, folder: Path, bug: str) -> None:
        crash_everywhere(address, scenario, folder, bug=bug)

    return check


def _unknown(address: CatalogAddress, _folder: Path, _bug: str) -> None:
    with address.opened() as catalog:
        an_unknown_commit_undoes_nothing(catalog, "commit", lands=True)


def _late(address: CatalogAddress, _folder: Path, _bug: str) -> None:
    with address.opened() as catalog:
        create_tables(catalog, "t")
    late_writers_are_refused(address)


def a_key_is_for_one_operation(address: CatalogAddress, _folder: Path, _bug: str) -> None:
    """A drop with the key of the create drops the table."""
    key = str(uuid.uuid4())
    with address.opened() as catalog:
        create_tables(catalog)
        client = InProcessClient(catalog)
        made = client.call("createTable", {"namespace": "db"}, {"name": "k", "schema": SCHEMA}, key=key)
        assert made.status_code == 200
        assert client.call("dropTable", {"namespace": "db", "table": "k"}, key=key).status_code == 204
        assert client.call("tableExists", {"namespace": "db", "table": "k"}).status_code == 404


def a_sibling_is_outside(address: CatalogAddress, _folder: Path, _bug: str) -> None:
    """`warehouse-evil` begins like `warehouse` and is another place."""
    with address.opened() as catalog:
        create_tables(catalog)
        for place in (f"{address.root}-evil/t", f"{address.root}evil"):
            request = {"name": "e", "schema": SCHEMA, "location": place}
            with pytest.raises(Invalid, match="outside the warehouse"):
                tables.create(catalog, state(catalog), CONTEXT, table("e"), request)


def protection_holds_in_a_publish(address: CatalogAddress, _folder: Path, _bug: str) -> None:
    """Inside a transaction nobody knows of it; the publish does."""
    with address.opened() as catalog:
        create_tables(catalog, "p")
        kept = tables.require(state(catalog), table("p")).uuid
        service.open_transaction(catalog, "main", "tester", "w")
        inside = state(catalog, "main~w")
        tables.drop(catalog, inside, CONTEXT, table("p"))
        tables.create(catalog, inside, CONTEXT, table("p"), {"name": "p", "schema": SCHEMA})
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


def _ground(stacks: Stacks, bug: str, folder: Path) -> CatalogAddress:
    return CatalogAddress.fresh(
        stacks, "postgres-s3" if bug in ON_POSTGRESQL else "embedded", folder, local_files=True
    )


@pytest.mark.parametrize("bug", BUGS)
def test_the_mistake_is_found(
    stacks: Stacks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bug: str
) -> None:
    address = _ground(stacks, bug, tmp_path)
    planted(bug, monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)) as caught:
        FOUND_BY[bug](address, tmp_path, bug)
    print(f"\n{bug}: {str(caught.value)[:200]}")


@pytest.mark.parametrize("bug", BUGS)
def test_without_the_mistake_the_check_is_content(stacks: Stacks, tmp_path: Path, bug: str) -> None:
    FOUND_BY[bug](_ground(stacks, bug, tmp_path), tmp_path, "")
