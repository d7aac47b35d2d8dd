"""Reading a moment by its time is repeatable, also while somebody writes."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from catalog.moments import AtTime
from catalog.names import WarehouseRef
from catalog.services import commits, tables, transactions
from catalog.services.catalog import Catalog
from catalog.services.commits import TableCommit
from tests.concurrency.catalog_address import CONTEXT, CatalogAddress, create_tables, state, table
from tests.concurrency.lock_step import Steps, lanes
from tests.harness.rest import append_body
from tests.harness.stacks import STACKS, Stacks

# Where a publish stops while a moment is read: before its SQL transaction, and at each step inside of it.
GATES = ("write.file-written", "publish.locked", "swap.row-set", "publish.before-close", "swap.before-commit")


@pytest.fixture(params=STACKS)
def address(request: pytest.FixtureRequest, stacks: Stacks, tmp_path: Path) -> CatalogAddress:
    made = CatalogAddress.fresh(stacks, request.param, tmp_path, local_files=True)
    with made.opened() as catalog:
        create_tables(catalog, "t")
    return made


@pytest.mark.parametrize("gate", GATES)
def test_a_moment_that_was_read_during_a_publish_stays_as_it_was(
    address: CatalogAddress, gate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lanes(address) as (writer, reader):
        transactions.open_transaction(writer.catalog, "main", "tester", "w")
        _append(writer.catalog, "main~w")
        works = [
            (lambda: transactions.publish(writer.catalog, "main", "tester", "w")[0], frozenset({gate})),
            (lambda: _read_now(reader.catalog), frozenset[str]()),
        ]
        published, read = Steps([writer, reader], works).run([0, 1], monkeypatch)
        assert published.error is None
        moment, number = read.answer
        assert _number_at(reader.catalog, moment) == number
        # The publish has a time of its own, and from then on its number is what a moment means.
        time_ms = writer.catalog.history.events("main", published.answer - 1, 1)[0]["time_ms"]
        while reader.catalog.now_ms() < time_ms:
            pass  # at most a millisecond: a moment can be read once its time has come
        assert _number_at(reader.catalog, _ref(time_ms)) == published.answer
        assert _number_at(reader.catalog, _ref(time_ms - 1)) == published.answer - 1


def test_a_commit_has_the_time_at_which_it_took_its_number(
    address: CatalogAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that is slow between its plan and the swap: others are earlier, and so are their times."""
    with lanes(address) as (slow, quick):
        works = [
            (lambda: _append(slow.catalog, "main"), frozenset({"swap.row-set"})),
            (quick.catalog.now_ms, frozenset[str]()),
        ]
        appended, looked = Steps([slow, quick], works).run([0, 1], monkeypatch)
        assert appended.error is None
        rows = quick.catalog.history.events("main", 0, 1000)
        assert rows[-1]["time_ms"] >= looked.answer
        assert [row["time_ms"] for row in rows] == sorted(row["time_ms"] for row in rows)
        metadata = orjson.loads(tables.load(state(quick.catalog), table("t")).document or b"")
        assert metadata["last-updated-ms"] <= rows[-1]["time_ms"]


def _append(catalog: Catalog, ref: str) -> None:
    where = state(catalog, ref)
    body = append_body(orjson.loads(tables.load(where, table("t")).document or b""))
    commits.commit_tables(
        catalog, where, CONTEXT, [TableCommit(table("t"), body["requirements"], body["updates"])]
    )


def _read_now(catalog: Catalog) -> tuple[WarehouseRef, int]:
    moment = _ref(catalog.now_ms())
    return moment, _number_at(catalog, moment)


def _ref(time_ms: int) -> WarehouseRef:
    return WarehouseRef("main", at=str(AtTime(time_ms)))


def _number_at(catalog: Catalog, moment: WarehouseRef) -> int:
    return catalog.resolve(moment)
