"""A cut never splits a source transaction, and never waits for one that is over."""

from __future__ import annotations

import itertools

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingest.change import ParsedRequest, TableName, TransactionBegin, TransactionEnd
from ingest.journal.journal import Journal
from ingest.journal.table_groups import SharedSpan
from tests.contract.ingest.journal.journal_setup import (
    WAREHOUSE,
    A,
    B,
    C,
    Clock,
    JournalDatabase,
    appended,
    numbered,
    parts,
)

LINGER_MS = 1_000
WAIT_MS = 300_000
_warehouses = itertools.count()


def border(
    journal: Journal, clock: Clock, up_to: int, tables: tuple[TableName, ...] = (A,), after: int = 0
) -> int:
    return journal.border(WAREHOUSE, tables, dict.fromkeys(tables, after), up_to, clock.now_ms)


def _rows(journal: Journal) -> int:
    with journal._database.engine.connect() as connection:
        count: int = connection.exec_driver_sql("SELECT count(*) FROM journal_transactions").scalar_one()
        return count


def test_without_transactions_any_cut_is_good(journal: Journal, clock: Clock) -> None:
    for n in range(4):
        appended(journal, numbered([n]))
    assert [border(journal, clock, up_to) for up_to in (1, 3, 4)] == [1, 3, 4]
    assert border(journal, clock, 4, after=4) == 4
    assert border(journal, clock, 4, (B,)) == 0


def test_an_open_one_is_waited_for(journal: Journal, clock: Clock) -> None:
    appended(journal, numbered([1]))
    appended(journal, parts((A, "1")))
    appended(journal, numbered([2]))
    assert border(journal, clock, 3) == 1
    assert border(journal, clock, 3, after=1) == 1
    clock.now_ms += LINGER_MS
    assert border(journal, clock, 3) == 3


def test_a_transaction_ends_with_its_marked_last_change(journal: Journal, clock: Clock) -> None:
    appended(journal, parts((A, "1")))
    appended(journal, parts((A, "1!")))
    assert border(journal, clock, 2) == 2
    assert border(journal, clock, 1) == 2  # one that is larger than a batch goes whole
    assert border(journal, clock, 2, after=2) == 2


def test_it_is_over_when_another_of_its_source_follows(journal: Journal, clock: Clock) -> None:
    appended(journal, parts((A, "1")))
    appended(journal, parts((A, "9"), source="other"))
    assert border(journal, clock, 2) == 0
    appended(journal, parts((A, "1"), (A, "2!")))
    appended(journal, parts((A, "10!"), source="other"))
    assert border(journal, clock, 4) == 4
    assert border(journal, clock, 2) == 3


def test_it_is_over_when_all_that_was_announced_is_there(journal: Journal, clock: Clock) -> None:
    appended(journal, parts((A, "1")))
    appended(journal, parts(ends=[TransactionEnd(0, "s", "1", 3)]))
    assert border(journal, clock, 1) == 0
    appended(journal, parts((A, "2!")))  # does not complete what is known to be incomplete
    assert border(journal, clock, 2) == 0
    appended(journal, parts((A, "1"), (A, "1")))
    assert border(journal, clock, 3) == 3
    assert border(journal, clock, 2) == 3


def test_duplicates_do_not_count_as_received(journal: Journal, clock: Clock) -> None:
    first = numbered([1], transaction="1")
    for _ in range(3):
        appended(journal, first)
    appended(journal, parts(ends=[TransactionEnd(0, "s", "1", 2)]))
    assert border(journal, clock, 1) == 0
    appended(journal, numbered([1, 2], transaction="1"))
    assert border(journal, clock, 2) == 2


def test_other_tables_are_not_held_up(journal: Journal, clock: Clock) -> None:
    appended(journal, parts((A, "1"), (B, "1")))
    appended(journal, numbered([1], table=C))
    assert border(journal, clock, 2, (C,)) == 2
    assert border(journal, clock, 2, (A,)) == 0
    assert border(journal, clock, 2, (B, C)) == 0


def test_what_lies_before_an_open_one_can_be_cut(journal: Journal, clock: Clock) -> None:
    appended(journal, parts((A, "1")))
    appended(journal, parts((A, "1!")))
    appended(journal, parts((A, "2")))
    assert border(journal, clock, 3) == 2
    assert border(journal, clock, 1) == 2


def test_nothing_is_cut_without_changes_before_an_open_transaction(journal: Journal, clock: Clock) -> None:
    for n in range(5):
        appended(journal, numbered([n], table=B))
    appended(journal, parts((A, "1")))
    assert border(journal, clock, 6, (A,)) == 0


def test_a_complete_one_that_chains_into_an_open_one_waits(journal: Journal, clock: Clock) -> None:
    appended(journal, parts((A, "1")))
    appended(journal, parts((A, "x"), source="other"))
    appended(journal, parts((A, "1!")))
    assert border(journal, clock, 3) == 0
    appended(journal, parts((A, "x!"), source="other"))
    assert border(journal, clock, 1) == 4


def test_one_that_was_cut_after_a_silence_can_be_finished(journal: Journal, clock: Clock) -> None:
    appended(journal, parts((A, "1")))
    clock.now_ms += LINGER_MS
    assert border(journal, clock, 1) == 1
    appended(journal, parts((A, "1")))
    assert border(journal, clock, 2, after=1) == 1
    appended(journal, parts((A, "1!")))
    assert border(journal, clock, 2, after=1) == 3


def test_complete_transactions_leave_no_rows_and_landed_ones_are_deleted(
    journal: Journal, clock: Clock
) -> None:
    appended(journal, parts((A, "1"), (B, "1!"), (A, "2"), (A, "3!")))
    assert _rows(journal) == 0
    appended(journal, parts((A, "4")))
    appended(journal, parts((B, "4!")))
    assert _rows(journal) == 1
    journal.trim(WAREHOUSE, {A: 3})
    assert _rows(journal) == 1
    journal.trim(WAREHOUSE, {B: 3})
    assert _rows(journal) == 0
    appended(journal, parts((A, "5")))
    journal.trim(WAREHOUSE, {A: 4})
    assert _rows(journal) == 1  # it may go on
    clock.now_ms += LINGER_MS
    journal.trim(WAREHOUSE, {A: 4})
    assert _rows(journal) == 0


def test_an_end_without_changes_is_deleted(journal: Journal, clock: Clock) -> None:
    appended(journal, parts(ends=[TransactionEnd(0, "s", "1", 3)]))
    journal.expire(clock.now_ms)
    assert _rows(journal) == 1
    journal.expire(clock.now_ms + 100_000)
    assert _rows(journal) == 0


def test_tables_that_share_a_transaction_are_a_group_until_it_has_landed(
    journal_database: JournalDatabase, journal: Journal
) -> None:
    assert journal.groups(WAREHOUSE) == []
    appended(journal, parts((A, "1"), (B, "2!")))
    assert journal.groups(WAREHOUSE) == []
    appended(journal, parts((A, "3"), (B, "3!")))
    assert journal.groups(WAREHOUSE) == [SharedSpan(frozenset({A, B}), 2, 2)]
    with journal_database.opened() as another:
        appended(another, parts((C, "4")))
        appended(another, parts((B, "4!")))
    appended(journal, parts((A, "5"), (B, "5!")))
    groups = {group.tables: group for group in journal.groups(WAREHOUSE)}
    assert groups == {
        frozenset({A, B}): SharedSpan(frozenset({A, B}), 2, 5),
        frozenset({B, C}): SharedSpan(frozenset({B, C}), 3, 4),
    }
    journal.trim(WAREHOUSE, {A: 4, B: 4})
    assert len(journal.groups(WAREHOUSE)) == 2, "C has not landed, nor has the newest of A and B"
    journal.trim(WAREHOUSE, {A: 5, B: 5, C: 5})
    assert journal.groups(WAREHOUSE) == []
    assert journal.groups("other") == []


REQUESTS = st.lists(
    st.lists(
        st.tuples(st.sampled_from((A, B)), st.sampled_from(("1", "2", "3", "1!", "2!"))),
        min_size=1,
        max_size=4,
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(requests=REQUESTS, sources=st.lists(st.sampled_from("st"), min_size=8, max_size=8), data=st.data())
def test_a_cut_never_splits_a_known_transaction(
    journal: Journal,
    clock: Clock,
    requests: list[list[tuple[TableName, str]]],
    sources: list[str],
    data: st.DataObject,
) -> None:
    """Cut again and again until nothing is left: every transaction of the source lands in one piece, unless
    it went on after it had looked complete.
    """
    warehouse = f"w{next(_warehouses)}"
    for request, source in zip(requests, sources, strict=False):
        appended(journal, parts(*request, source=source), warehouse)
    clock.now_ms += LINGER_MS
    head, after = journal.head(warehouse), 0
    cuts = []
    while after < head:
        up_to = data.draw(st.integers(after + 1, head))
        found = journal.border(warehouse, (A, B), {A: after, B: after}, up_to, clock.now_ms)
        assert found > after
        assert found <= head
        cuts.append(after := found)
    for source, transactions in _spans(requests, sources).items():
        for transaction, (first, last) in transactions.items():
            assert not any(first <= cut < last for cut in cuts), (source, transaction)


def _spans(
    requests: list[list[tuple[TableName, str]]], sources: list[str]
) -> dict[str, dict[str, tuple[int, int]]]:
    """First and last id of each stretch of a transaction that the journal could tie together: while nothing
    else of its source came in between, or after it was already spread over several requests.
    """
    spans: dict[str, dict[str, tuple[int, int]]] = {}
    newest: dict[str, str] = {}
    ended: dict[tuple[str, str], bool] = {}
    for id_, (request, source) in enumerate(zip(requests, sources, strict=False), 1):
        own = spans.setdefault(source, {})
        for _, name in request:
            transaction = name.rstrip("!")
            first, last = own.get(transaction, (id_, id_))
            forgotten = first == last != id_ and (
                newest.get(source) != transaction or ended.get((source, transaction), False)
            )
            own[transaction] = (id_ if forgotten else first, id_)
        for _, name in request:
            key = (source, name.rstrip("!"))
            ended[key] = ended.get(key, False) or name.endswith("!")
        newest[source] = request[-1][1].rstrip("!")
    return spans


def test_a_request_with_only_ends_is_answered(journal: Journal) -> None:
    receipt = appended(journal, ParsedRequest("debezium", 1, ends=[TransactionEnd(0, "s", "1", None)]))
    assert receipt.first is None


def begun(transaction: str, source: str = "") -> ParsedRequest:
    """The record that a transaction begins, alone in its request."""
    return ParsedRequest("debezium", 1, begins=[TransactionBegin(0, source, transaction)])


def ended(transaction: str, size: int | None = None, source: str = "") -> ParsedRequest:
    return ParsedRequest("debezium", 1, ends=[TransactionEnd(0, source, transaction, size)])


def test_an_announced_transaction_outlives_a_crash_of_its_source(journal: Journal, clock: Clock) -> None:
    appended(journal, begun("1"))
    appended(journal, parts((A, "1")))
    clock.now_ms += WAIT_MS - 1
    assert border(journal, clock, 1) == 0
    appended(journal, begun("1"))  # its source is back
    appended(journal, parts((A, "1")))
    clock.now_ms += WAIT_MS - 1
    assert border(journal, clock, 2) == 0
    appended(journal, ended("1", 2))
    assert border(journal, clock, 2) == 2
    assert _rows(journal) == 1
    journal.trim(WAREHOUSE, {A: 2})
    assert _rows(journal) == 0


def test_it_is_not_waited_for_without_end(journal: Journal, clock: Clock) -> None:
    appended(journal, begun("1", "s"))
    appended(journal, parts((A, "1")))
    clock.now_ms += WAIT_MS
    assert border(journal, clock, 1) == 1


def test_once_the_end_is_there_only_a_moment_is_given_to_what_is_missing(
    journal: Journal, clock: Clock
) -> None:
    appended(journal, begun("1"))
    appended(journal, parts((A, "1")))
    appended(journal, ended("1", 2))
    assert border(journal, clock, 1) == 0
    clock.now_ms += LINGER_MS
    assert border(journal, clock, 1) == 1


def test_a_nameless_end_is_that_of_the_open_one_with_its_id(journal: Journal, clock: Clock) -> None:
    appended(journal, parts((A, "1"), source="one"))
    appended(journal, parts((B, "1"), (B, "1"), source="two"))
    appended(journal, ended("1", 2))
    assert border(journal, clock, 2, (A,)) == 0
    assert border(journal, clock, 2, (B,)) == 2
    appended(journal, ended("1", 1))
    assert border(journal, clock, 2, (A,)) == 2
    assert _rows(journal) == 0


def test_a_nameless_end_may_come_first(journal: Journal, clock: Clock) -> None:
    appended(journal, ended("1", 2))
    appended(journal, parts((A, "1")))
    assert border(journal, clock, 1) == 0
    appended(journal, parts((A, "1")))
    assert border(journal, clock, 2) == 2


def test_what_is_sent_again_leaves_nothing_behind(journal: Journal, clock: Clock) -> None:
    """All of a transaction once more, when it has landed: its borders wait for nobody, and are forgotten."""
    for _ in range(2):
        appended(journal, begun("1"))
        appended(journal, numbered([1], transaction="1"))
        appended(journal, ended("1", 1))
    assert border(journal, clock, 1) == 1
    appended(journal, begun("1"))  # another transaction, of another database
    appended(journal, parts((B, "1"), source="other"))
    assert border(journal, clock, 2, (B,)) == 0
    appended(journal, ended("1", 1))
    assert border(journal, clock, 2, (B,)) == 2
    journal.expire(clock.now_ms + WAIT_MS)
    assert _rows(journal) == 0
