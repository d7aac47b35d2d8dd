"""Writers whose transaction is over: after its end, its expiry, or while it ends, nothing gets in."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import orjson
import pytest

from catalog.errors import CommitFailed
from catalog.models import StagedChange, Transaction
from catalog.services import commits, tables, transactions
from catalog.services.catalog import Catalog
from catalog.services.commits import TableCommit
from catalog.services.warehouse_state import WarehouseState
from tests.concurrency.catalog_address import (
    CONTEXT,
    CatalogAddress,
    create_tables,
    gaps,
    problems,
    state,
    table,
)
from tests.concurrency.lock_step import PUBLISH_GATES, Steps, Work, all_orders, lanes
from tests.harness.rest import append_body
from tests.harness.stacks import STACKS, Stacks

TTL_S = 100
OPEN_GATES = frozenset({"swap.begun", "swap.before-commit"})


@pytest.fixture(params=STACKS)
def address(request: pytest.FixtureRequest, stacks: Stacks, tmp_path: Path) -> CatalogAddress:
    made = CatalogAddress.fresh(stacks, request.param, tmp_path, local_files=True)
    with made.opened() as catalog:
        create_tables(catalog, "t")
    return made


def _later(catalog: Catalog, seconds: int) -> Catalog:
    """The same catalog with its clock put forward."""
    now_ms = type(catalog).now_ms
    setattr(catalog, "now_ms", lambda: now_ms() + seconds * 1000)  # noqa: B010
    return catalog


def _append(catalog: Catalog, where: WarehouseState) -> int:
    body = append_body(orjson.loads(tables.load(where, table("t")).document or b""))
    wanted = TableCommit(table("t"), body["requirements"], body["updates"])
    commits.commit_tables(catalog, where, CONTEXT, [wanted])
    snapshot_id: int = body["updates"][0]["snapshot"]["snapshot-id"]
    return snapshot_id


def _snapshots(catalog: Catalog) -> list[int]:
    metadata = orjson.loads(tables.load(state(catalog), table("t")).document or b"")
    return [snapshot["snapshot-id"] for snapshot in metadata["snapshots"]]


def _opened(catalog: Catalog, name: str = "w") -> WarehouseState:
    transactions.open_transaction(catalog, "main", "tester", name, TTL_S)
    return state(catalog, f"main~{name}")


def late_writers_are_refused(address: CatalogAddress) -> None:
    """A writer that entered its transaction in time and writes after the end of it."""
    with address.opened() as catalog, address.opened() as later:
        _later(later, TTL_S + 1)
        for end in ("published", "aborted", "expired", "expired and opened again"):
            inside = _opened(catalog)
            _append(catalog, inside)
            before = _snapshots(catalog)
            if end == "published":
                transactions.publish(catalog, "main", "tester", "w")
                before = _snapshots(catalog)
            elif end == "aborted":
                transactions.abort(catalog, "main", "w")
            elif end == "expired and opened again":
                transactions.open_transaction(later, "main", "tester", "w", TTL_S)
            writer = later if end == "expired" else catalog
            with pytest.raises(CommitFailed, match="nothing was written"):
                _append(writer, inside)
            if end == "expired":
                with pytest.raises(CommitFailed, match="expired"):
                    transactions.publish(later, "main", "tester", "w")
                transactions.abort(catalog, "main", "w")
            assert _snapshots(catalog) == before, end
        transactions.abort(later, "main", "w")
        assert problems(catalog) == []
        assert gaps(catalog) == []


def test_a_late_writer_is_refused(address: CatalogAddress) -> None:
    late_writers_are_refused(address)


def test_a_transaction_is_published_or_expires_and_never_both(address: CatalogAddress) -> None:
    """One publishes while another, for whom the time is over, opens the name again: every seventh order."""
    with address.opened() as catalog, lanes(address) as (publisher, opener):
        _later(opener.catalog, TTL_S + 1)
        ended: dict[str, int] = {"committed": 0, "expired": 0}
        for place, order in enumerate(all_orders()[::7]):
            name = f"w{place}"
            added = _append(catalog, _opened(catalog, name))
            transaction = transactions.newest(catalog, "main", name)
            works: list[tuple[Work, frozenset[str]]] = [
                (partial(transactions.publish, publisher.catalog, "main", "tester", name), PUBLISH_GATES),
                (partial(_opened, opener.catalog, name), OPEN_GATES),
            ]
            with pytest.MonkeyPatch.context() as patch:
                Steps([publisher, opener], works).run(order, patch)
            found = {one.id: one.state for one in catalog.transactions.before("main", 2**62, "", 1000)}[
                transaction.id
            ]
            ended[found] += 1
            assert (added in _snapshots(catalog)) == (found == "committed"), order
        print(f"\n{ended}")
        assert min(ended.values()) > 0
        assert gaps(catalog) == []


def test_a_publish_that_ends_under_a_second_one_is_answered_alike(
    address: CatalogAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the first one's end falls between the looks of the second, both answer the same number."""
    with address.opened() as catalog, address.opened() as quicker:
        for looks in range(1, 4):
            _append(catalog, _opened(catalog))
            newest, numbers, seen = catalog.transactions.newest, [], iter(range(looks))

            def look(warehouse: str, name: str) -> Transaction | None:
                found = newest(warehouse, name)  # noqa: B023
                if next(seen, None) == looks - 1:  # noqa: B023
                    numbers.append(transactions.publish(quicker, "main", "tester", name)[0])  # noqa: B023
                return found

            with monkeypatch.context() as patched:
                patched.setattr(catalog.transactions, "newest", look)
                number, _ = transactions.publish(catalog, "main", "tester", "w")
            assert numbers in ([], [number])


def test_a_commit_that_lands_while_the_transaction_is_published_is_published_too(
    address: CatalogAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The publish reads the staged changes before it locks the transaction. A commit in between was
    acknowledged, so it must not be lost.
    """
    with address.opened() as catalog, address.opened() as other:
        inside = _opened(catalog)
        first = _append(catalog, inside)
        read, late = transactions.all_staged, list[int]()

        def read_and_commit(used: Catalog, transaction: Transaction) -> list[StagedChange]:
            found = read(used, transaction)
            if not late:
                late.append(_append(other, state(other, "main~w")))
            return found

        monkeypatch.setattr(transactions, "all_staged", read_and_commit)
        transactions.publish(catalog, "main", "tester", "w")
        assert {first, *late} <= set(_snapshots(catalog))
