"""An answer means that the changes are there: in order, once, under ids without gaps."""

from __future__ import annotations

import sqlalchemy as sa

from ingest.change import Change, Declared, ParsedRequest, Reject
from ingest.journal.journal import Journal
from ingest.settings import JournalLimits
from tests.contract.ingest.journal.journal_setup import (
    START_MS,
    WAREHOUSE,
    A,
    B,
    Clock,
    JournalDatabase,
    appended,
    everything,
    identified,
    identities_in,
    numbered,
    numbers_in,
    problems,
)


def test_a_request_is_there_when_it_is_answered(journal_database: JournalDatabase, journal: Journal) -> None:
    receipt = appended(journal, numbered(range(5)))
    assert (receipt.first, receipt.last, receipt.head) == (1, 1, 1)
    assert receipt.tables == (A,)
    assert receipt.duplicates == frozenset()
    with journal_database.opened() as another:
        assert numbers_in(another) == [0, 1, 2, 3, 4]
        assert problems(another) == []


def test_every_field_of_a_change_comes_back(journal: Journal) -> None:
    change = Change(
        index=3,
        table=A,
        operation="update",
        before={"id": 1},
        after={"id": 1, "big": 2**70, "text": "a\0b", "float": 1.5, "list": [None, {"x": True}]},
        key=("id",),
        row_id="1",
        source="pg",
        position="00/01",
        identity="x",
        transaction="77",
        transaction_ends=True,
        time_ms=5,
        declared=Declared({"id": "long"}, {"id": "ms"}, frozenset({"id"})),
    )
    reject = Reject(4, "why", b"\x00\xff", "code", A, "pg", "00/02", "y", None)
    appended(journal, ParsedRequest("debezium", 5, [change], [reject]))
    [entry] = journal.read(WAREHOUSE, A, 0, 1)
    assert (entry.id, entry.received_ms) == (1, START_MS)
    assert entry.changes == [change]
    assert entry.rejects == [reject]


def test_all_tables_of_a_request_share_its_id(journal: Journal) -> None:
    changes = [Change(n, (A, B)[n % 2], "insert", after={"n": n}) for n in range(6)]
    lost = Reject(6, "no table", b"?")
    receipt = appended(journal, ParsedRequest("native", 7, changes, [lost]))
    assert (receipt.first, receipt.tables) == (1, (A, B, ()))
    assert [c.index for e in journal.read(WAREHOUSE, A, 0, 9) for c in e.changes] == [0, 2, 4]
    assert [c.index for e in journal.read(WAREHOUSE, B, 0, 9) for c in e.changes] == [1, 3, 5]
    assert [e.rejects for e in journal.read(WAREHOUSE, (), 0, 9)] == [[lost]]


def test_warehouses_count_for_themselves(journal: Journal) -> None:
    assert appended(journal, numbered(range(3)), "one").first == 1
    assert appended(journal, numbered(range(3)), "two").first == 1
    assert appended(journal, numbered(range(3, 6)), "one").first == 2
    assert numbers_in(journal, "one") == [0, 1, 2, 3, 4, 5]
    assert numbers_in(journal, "two") == [0, 1, 2]
    assert (journal.head("one"), journal.head("two"), journal.head("three")) == (2, 1, 0)


def test_an_empty_request_is_answered_and_takes_no_id(journal: Journal) -> None:
    receipt = appended(journal, ParsedRequest("native"))
    assert (receipt.first, receipt.last, receipt.tables) == (None, None, ())
    assert journal.head(WAREHOUSE) == 0


def test_numbers_are_known_for_ever(journal_database: JournalDatabase, clock: Clock) -> None:
    with journal_database.opened(clock=clock) as journal:
        appended(journal, numbered([1, 2, 3, 7]))
    clock.now_ms += 10**9
    with journal_database.opened(clock=clock) as journal:
        receipt = appended(journal, numbered([2, 3, 4, 4, 7, 8]))
        assert receipt.duplicates == {0, 1, 3, 4}
        assert receipt.first == 2
        again = appended(journal, numbered([8, 4, 1]))
        assert (again.first, again.head) == (None, 2)
        assert again.duplicates == {0, 1, 2}
        assert numbers_in(journal) == [1, 2, 3, 7, 4, 8]
        assert problems(journal) == []


def test_sources_that_count_are_apart(journal: Journal) -> None:
    appended(journal, numbered(range(3), source="x"))
    assert appended(journal, numbered(range(3), source="y")).duplicates == frozenset()
    assert len(numbers_in(journal)) == 6


def test_a_source_that_counts_without_gaps_is_one_row(journal: Journal) -> None:
    for start in (0, 20, 10, 30):
        appended(journal, numbered(range(start, start + 10)))
    with journal._database.engine.connect() as connection:
        rows = connection.execute(sa.text("SELECT first, last FROM journal_ranges")).all()
    assert [tuple(row) for row in rows] == [(0, 39)]


def test_identities_are_known_within_the_window(journal_database: JournalDatabase, clock: Clock) -> None:
    with journal_database.opened(clock=clock) as journal:
        appended(journal, identified(["a", "b"]))
        receipt = appended(journal, identified(["b", "c", "c", "d"]))
        assert receipt.duplicates == {0, 2}
        clock.now_ms += 299_999
        assert appended(journal, identified(["a"])).first is None
        assert identities_in(journal) == ["a", "b", "c", "d"]
        assert problems(journal) == []
    with journal_database.opened(clock=clock) as journal:  # after a restart as well
        assert appended(journal, identified(["d"])).first is None
        clock.now_ms += 100_000
        assert appended(journal, identified(["a"])).first == 3


def test_duplicates_are_found_across_processes(journal_database: JournalDatabase) -> None:
    with journal_database.opened() as one, journal_database.opened() as other:
        for step in range(6):
            appended(one, identified([f"{step}", f"{step}x"]))
            receipt = appended(other, identified([f"{step}x", f"{step}y"]))
            assert receipt.duplicates == {0}
            assert appended(one, identified([f"{step}y"])).first is None
        assert problems(one) == []


def test_the_same_identity_of_another_source_or_warehouse_is_another_event(journal: Journal) -> None:
    appended(journal, identified(["a"], source="x"))
    assert appended(journal, identified(["a"], source="y")).first == 2
    assert appended(journal, identified(["a"], source="x"), "other").first == 1


def test_what_has_neither_number_nor_identity_is_never_a_duplicate(journal: Journal) -> None:
    plain = ParsedRequest("rows", 1, [Change(0, A, "insert", after={"n": 1})])
    for _ in range(3):
        assert appended(journal, plain).duplicates == frozenset()
    assert len(everything(journal)) == 3


def test_without_deduplication_everything_is_new(journal_database: JournalDatabase) -> None:
    with journal_database.opened(JournalLimits(deduplicate=False)) as journal:
        for _ in range(2):
            assert appended(journal, numbered(range(3))).duplicates == frozenset()
            assert appended(journal, identified(["a"])).duplicates == frozenset()
        assert len(everything(journal)) == 8


def test_an_event_that_became_several_changes_is_a_duplicate_if_all_of_them_are(journal: Journal) -> None:
    def rows(*identities: str) -> ParsedRequest:
        return ParsedRequest(
            "canal", 1, [Change(0, A, "insert", identity=identity) for identity in identities]
        )

    appended(journal, rows("1/0", "1/1"))
    assert appended(journal, rows("1/1", "1/2")).duplicates == frozenset()
    assert appended(journal, rows("1/0", "1/2")).duplicates == {0}
    assert identities_in(journal) == ["1/0", "1/1", "1/2"]


def test_a_repeated_reject_is_a_duplicate_where_it_can_be_known(journal: Journal) -> None:
    def bad(**known: str | int) -> ParsedRequest:
        return ParsedRequest("native", 1, rejects=[Reject(0, "bad", b"{", table=A, source="s", **known)])  # type: ignore[arg-type]

    for known in ({"number": 5}, {"identity": "x"}):
        assert appended(journal, bad(**known)).first is not None
        assert appended(journal, bad(**known)).duplicates == {0}
    assert appended(journal, numbered([5])).first is None
    for _ in range(2):
        assert appended(journal, bad()).first is not None


def test_requests_that_wait_together_share_a_commit_and_keep_their_order(journal: Journal) -> None:
    futures = [journal.submit(WAREHOUSE, numbered(range(n * 10, n * 10 + 10))) for n in range(50)]
    futures += [journal.submit(WAREHOUSE, numbered(range(n * 10, n * 10 + 10))) for n in range(50)]
    receipts = [future.result(timeout=60) for future in futures]
    assert [receipt.first for receipt in receipts[:50]] == list(range(1, 51))
    assert all(len(receipt.duplicates) == 10 for receipt in receipts[50:])
    assert numbers_in(journal) == list(range(500))
    assert problems(journal) == []


def test_names_of_any_length_and_kind(journal: Journal) -> None:
    names = ["", "ü" * 500, "a\0b", "a\N{SYMBOL FOR NULL}b", "x" * 100_000, "\ud800"]
    for name in names:
        changes = [
            Change(0, A, "insert", source=name, number=1, transaction=name),
            Change(1, A, "insert", source=name, identity=f"i{name}", transaction=name),
        ]
        assert appended(journal, ParsedRequest("native", 2, changes)).duplicates == frozenset()
        assert appended(journal, ParsedRequest("native", 2, changes)).duplicates == {0, 1}
    assert [change.source for _, change in everything(journal)] == [name for name in names for _ in "12"]
