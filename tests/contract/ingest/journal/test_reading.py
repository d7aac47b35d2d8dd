"""What waits, how far a batch reaches, and what is left when it has landed."""

from __future__ import annotations

import pytest

from ingest.change import Change, ParsedRequest
from ingest.journal.entries import TRIMMED_AT_A_TIME
from ingest.journal.journal import Journal
from tests.contract.ingest.journal.journal_setup import (
    START_MS,
    WAREHOUSE,
    A,
    B,
    Clock,
    JournalDatabase,
    appended,
    identified,
    numbered,
    numbers_in,
)


def test_pending_of_each_table(journal: Journal, clock: Clock) -> None:
    appended(journal, numbered(range(3)))
    clock.now_ms += 50
    appended(journal, numbered(range(3, 5), table=B))
    appended(journal, numbered([0, 5]))  # one of them is a duplicate
    found = {one.table: one for one in journal.pending(WAREHOUSE)}
    assert (found[A].events, found[A].oldest_ms, found[A].first_id, found[A].last_id) == (4, START_MS, 1, 3)
    assert (found[B].events, found[B].oldest_ms, found[B].first_id, found[B].last_id) == (
        2,
        START_MS + 50,
        2,
        2,
    )
    assert journal.pending("other") == []
    fill = journal.buffer_usage()
    assert fill.pending_events == 6
    assert fill.pending_bytes == found[A].stored_bytes + found[B].stored_bytes
    assert fill.level == fill.pending_bytes / fill.bytes_max


def test_read_between_two_ids(journal: Journal) -> None:
    for n in range(200):
        appended(journal, numbered([n]))
    assert [e.id for e in journal.read(WAREHOUSE, A, 3, 150)] == list(range(4, 151))
    assert [e.id for e in journal.read(WAREHOUSE, A, 0, 200, events_max=5)] == [1, 2, 3, 4, 5]
    assert list(journal.read(WAREHOUSE, B, 0, 200)) == []


def test_an_entry_is_never_read_in_part(journal: Journal) -> None:
    appended(journal, numbered(range(10)))
    appended(journal, numbered(range(10, 20)))
    [only] = journal.read(WAREHOUSE, A, 0, 2, events_max=1)
    assert len(only.changes) == 10


def test_how_far_a_batch_reaches(journal: Journal) -> None:
    for n in range(10):
        appended(journal, numbered(range(n * 10, n * 10 + 10), table=(A, B)[n % 2]))
    both = {A: 0, B: 0}
    assert journal.reach(WAREHOUSE, both, 10, events_max=1_000) == 10
    assert journal.reach(WAREHOUSE, both, 10, events_max=35) == 3
    assert journal.reach(WAREHOUSE, both, 10, events_max=1) == 1
    assert journal.reach(WAREHOUSE, {A: 0}, 10, events_max=20) == 3
    assert journal.reach(WAREHOUSE, {A: 5}, 10, events_max=10) == 7
    assert journal.reach(WAREHOUSE, {B: 10}, 10, events_max=10) == 10
    one = journal.pending(WAREHOUSE)[0].stored_bytes // 5
    assert journal.reach(WAREHOUSE, both, 10, events_max=1_000, bytes_max=one * 4) <= 5


def test_trim_forgets_what_has_landed(journal_database: JournalDatabase, journal: Journal) -> None:
    for n in range(6):
        appended(journal, numbered([n], table=(A, B)[n % 2]))
    journal.trim(WAREHOUSE, {A: 3})
    assert {one.table: one.events for one in journal.pending(WAREHOUSE)} == {A: 1, B: 3}
    assert journal.buffer_usage().pending_events == 4
    journal.trim(WAREHOUSE, {A: 3})  # again: harmless
    journal.trim(WAREHOUSE, {A: 6, B: 6})
    assert journal.pending(WAREHOUSE) == []
    fill = journal.buffer_usage()
    assert (fill.pending_events, fill.pending_bytes, fill.level) == (0, 0, 0)
    assert appended(journal, numbered(range(7))).duplicates == set(range(6))
    with journal_database.opened() as another:
        assert another.head(WAREHOUSE) == 7
        assert numbers_in(another) == [6]


def test_trim_of_very_many(journal: Journal) -> None:
    futures = [journal.submit(WAREHOUSE, numbered([n])) for n in range(TRIMMED_AT_A_TIME * 2 + 7)]
    for future in futures:
        future.result(timeout=60)
    journal.trim(WAREHOUSE, {A: TRIMMED_AT_A_TIME * 2 + 5})
    assert numbers_in(journal) == [TRIMMED_AT_A_TIME * 2 + 5, TRIMMED_AT_A_TIME * 2 + 6]
    assert journal.buffer_usage().pending_events == 2


def test_another_process_sees_that_something_was_trimmed(
    journal_database: JournalDatabase, journal: Journal
) -> None:
    appended(journal, numbered(range(5)))
    with journal_database.opened() as another:
        another.trim(WAREHOUSE, {A: 1})
    journal._read_s = float("-inf")  # as if a moment had passed
    assert journal.buffer_usage().pending_events == 0


def test_sweep_forgets_old_identities_and_only_those(journal: Journal, clock: Clock) -> None:
    appended(journal, identified(["a"]))
    clock.now_ms += 200_000
    appended(journal, identified(["b"]))
    journal.expire(clock.now_ms + 99_999)
    assert _marks(journal) == 2
    journal.expire(clock.now_ms + 100_000)
    assert _marks(journal) == 1
    assert appended(journal, identified(["b"])).first is None
    journal.expire(clock.now_ms + 10**9)
    assert _marks(journal) == 0


def _marks(journal: Journal) -> int:
    with journal._database.engine.connect() as connection:
        count: int = connection.exec_driver_sql("SELECT count(*) FROM journal_marks").scalar_one()
        return count


@pytest.mark.parametrize("tables", [1, 300])
def test_many_tables_in_one_request(journal: Journal, tables: int) -> None:
    changes = [Change(n, ("db", f"t{n % tables}"), "insert", after={"n": n}) for n in range(600)]
    receipt = appended(journal, ParsedRequest("native", 600, changes))
    assert len(receipt.tables) == tables
    assert sum(one.events for one in journal.pending(WAREHOUSE)) == 600
