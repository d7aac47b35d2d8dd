"""When a source transaction is complete, and what is remembered of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ingest.change import TransactionEnd
from ingest.journal.encoded_request import TransactionStep
from ingest.journal.table_groups import SourceTransaction
from ingest.journal.transactions import TransactionLedger, new_steps


def step(
    transaction: str, table: str = "t", *, ends: bool = False, source: str = "s", slot: int = 0
) -> TransactionStep:
    return TransactionStep(source, transaction, table, ends, slot)


def rows(ledger: TransactionLedger) -> dict[str, SourceTransaction]:
    return {row.transaction: row for row in ledger.kept()}


def test_one_request_that_holds_it_all_leaves_nothing() -> None:
    ledger = TransactionLedger()
    ledger.take([step("1"), step("1", ends=True)], [], 1, 0)
    ledger.take([step("2"), step("2")], [TransactionEnd(2, "s", "2", 2)], 2, 0)
    ledger.take([step("3"), step("4", ends=True)], [], 3, 0)
    assert rows(ledger) == {}


def test_the_last_one_of_a_source_stays_open_until_another_follows() -> None:
    ledger = TransactionLedger()
    ledger.take([step("1"), step("2")], [], 1, 0)
    assert set(rows(ledger)) == {"2"}
    ledger.take([step("2")], [], 2, 5)
    row = rows(ledger)["2"]
    assert (row.first_id, row.last_id, row.received, row.is_open, row.updated_ms) == (1, 2, 2, True, 5)
    ledger.take([step("3", ends=True)], [], 3, 6)
    assert not rows(ledger)["2"].is_open


def test_another_source_completes_nothing() -> None:
    ledger = TransactionLedger()
    ledger.take([step("1")], [], 1, 0)
    ledger.take([step("2", source="other", ends=True)], [], 2, 0)
    assert rows(ledger)["1"].is_open


def test_an_announced_size_is_waited_for_even_if_another_follows() -> None:
    ledger = TransactionLedger()
    ledger.take([step("1")], [TransactionEnd(1, "s", "1", 3)], 1, 0)
    ledger.take([step("2", ends=True)], [], 2, 0)
    assert rows(ledger)["1"].is_open
    ledger.take([step("1"), step("1")], [], 3, 0)
    row = rows(ledger)["1"]
    assert (row.is_open, row.first_id, row.last_id) == (False, 1, 3)


def test_an_end_may_come_before_its_changes() -> None:
    ledger = TransactionLedger()
    ledger.take([], [TransactionEnd(0, "s", "1", 2)], 7, 0)
    assert rows(ledger)["1"].first_id == 0
    ledger.take([step("1")], [], 8, 0)
    assert rows(ledger)["1"].is_open
    ledger.take([step("1")], [], 9, 0)
    assert not rows(ledger)["1"].is_open


def test_an_end_of_something_unknown_without_a_size_is_nothing() -> None:
    ledger = TransactionLedger()
    ledger.take([], [TransactionEnd(0, "s", "1", None)], 7, 0)
    assert rows(ledger) == {}


def test_a_straggler_opens_it_again() -> None:
    ledger = TransactionLedger()
    stored = SourceTransaction(
        "s", "1", received=2, followed=True, first_id=1, last_id=2, tables={"t"}, is_stored=True
    )
    ledger.add_stored([stored])
    ledger.take([step("1")], [], 9, 0)
    row = rows(ledger)["1"]
    assert (row.is_open, row.first_id, row.last_id) == (True, 1, 9)


def test_what_was_stored_and_turned_out_whole_is_deleted() -> None:
    ledger = TransactionLedger()
    ledger.add_stored(
        [SourceTransaction("s", "1", received=1, first_id=4, last_id=4, tables={"t"}, is_stored=True)]
    )
    ledger.take([], [TransactionEnd(0, "s", "1", 1)], 4, 0)
    assert [row.transaction for row in ledger.gone()] == ["1"]
    assert rows(ledger) == {}


def test_silence_ends_it() -> None:
    row = SourceTransaction("s", "1", first_id=1, last_id=1, updated_ms=1_000)
    assert row.is_open_at(1_999, 1_000)
    assert not row.is_open_at(2_000, 1_000)


def test_tables_that_meet_are_told() -> None:
    ledger = TransactionLedger()
    ledger.take([step("1", "a"), step("2", "b")], [], 1, 0)
    assert ledger.shared() == []
    ledger.take([step("2", "c")], [], 2, 0)
    assert ledger.shared() == [(frozenset("bc"), 1, 2)]


def test_duplicates_are_not_counted() -> None:
    steps = [step("1", slot=0), step("1", slot=1)]
    assert new_steps(steps, {0}) == steps[1:]
    assert new_steps(steps, ()) is steps


@given(st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=4), max_size=8))
def test_only_the_newest_is_open_and_whole_ones_are_forgotten(requests: list[list[int]]) -> None:
    ledger = TransactionLedger()
    ids: dict[int, list[int]] = {}
    for journal_id, names in enumerate(requests, 1):
        ledger.take([step(str(name)) for name in names], [], journal_id, 0)
        for name in names:
            ids.setdefault(name, []).append(journal_id)
    newest = str(requests[-1][-1]) if requests else None
    for row in rows(ledger).values():
        assert row.is_open == (row.transaction == newest)
        assert row.last_id == ids[int(row.transaction)][-1]
        assert row.is_open or row.first_id < row.last_id
