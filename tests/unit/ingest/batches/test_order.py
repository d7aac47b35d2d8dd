"""The order inside a batch, repeats, key changes, watermarks."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ingest.batches.order import (
    Arrived,
    after_loads,
    in_order,
    is_late,
    load_key,
    moves,
    watermarks,
    without_repeats,
)
from ingest.change import Change, position_of

T = ("ns", "t")


def change(source: str = "s", position: str = "", **more: Any) -> Change:
    return Change(0, T, more.pop("operation", "insert"), source=source, position=position, **more)


def arrived(changes: list[Change]) -> list[Arrived]:
    return [Arrived(number, 0, item) for number, item in enumerate(changes)]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 20)), max_size=30))
def test_each_source_is_in_its_own_order_and_keeps_its_places(events: list[tuple[str, int]]) -> None:
    given_ = arrived([change(source, f"{position:04}") for source, position in events])
    found = in_order(given_)
    assert [item.change.source for item in found] == [source for source, _ in events]
    for source in "ab":
        mine = [item for item in found if item.change.source == source]
        assert [i.change.position for i in mine] == sorted(i.change.position for i in mine)
        # Equal positions stay in order of arrival.
        assert all(
            a.journal_id < b.journal_id for a, b in pairwise(mine) if a.change.position == b.change.position
        )
    assert {item.journal_id for item in found} == {item.journal_id for item in given_}


S, BEFORE_S, AFTER_S = 26529824, 26529640, 26530000  # as a real run had them


def loaded(lsn: int) -> Change:
    return change(position=position_of(lsn, lsn, 0), operation="read")


def streamed(lsn: int, order: int = 1, last_commit: int | None = None) -> Change:
    return change(position=position_of(last_commit or lsn, lsn, order), operation="update")


def test_a_transaction_that_was_open_while_the_first_load_began_is_newer_than_it() -> None:
    """PostgreSQL logged its change before the load's place, and it was committed behind it."""
    read, update, later = loaded(S), streamed(BEFORE_S), streamed(AFTER_S, last_commit=AFTER_S - 8)
    together = after_loads(arrived([read, update, later]), {})
    assert [item.journal_id for item in in_order(together)] == [0, 1, 2]
    alone = [item.change for item in after_loads(arrived([streamed(BEFORE_S)]), {"s": read.position})]
    assert not is_late(alone, {"s": read.position})
    assert alone[0].position == update.position < later.position


def test_behind_the_first_load_nothing_is_moved() -> None:
    """What comes again later stays old, and so does what names the commit before it."""
    newest = position_of(AFTER_S, AFTER_S + 8, 3)
    again = [streamed(BEFORE_S), streamed(BEFORE_S, last_commit=BEFORE_S - 8)]
    assert [item.change for item in after_loads(arrived(again[:1]), {"s": newest})] == [streamed(BEFORE_S)]
    assert is_late([again[0]], {"s": newest})
    known = {"s": loaded(S).position, "other": ""}
    moved = after_loads(arrived([again[1], change("other", again[0].position), change("s", "x")]), known)
    assert [item.change.position for item in moved] == [again[1].position, again[0].position, "x"]


def test_changes_without_a_position_stay_where_they_came() -> None:
    given_ = arrived([change("a"), change("b", "2"), change("a"), change("b", "1")])
    assert [item.journal_id for item in in_order(given_)] == [0, 3, 2, 1]


def test_a_repeated_event_counts_once_and_events_without_identity_always() -> None:
    given_ = arrived(
        [
            change(identity="x"),
            change(identity="x"),
            change("other", identity="x"),
            change(number=1),
            change(number=1),
            change(),
            change(),
        ]
    )
    assert [item.journal_id for item in without_repeats(given_)] == [0, 2, 3, 5, 6]


def moved(**more: Any) -> list[Change]:
    return [
        change(operation="delete", before={"id": 1}, transaction="x"),
        change(operation="insert", after={"id": 2}, **{"transaction": "x", **more}),
    ]


def test_an_insert_that_lacks_values_takes_them_from_the_row_just_deleted() -> None:
    assert moves(moved(), ["id", "large"], ["id"]) == {1: {"id": 1}}


def test_no_move_without_a_missing_value_a_common_transaction_or_a_key() -> None:
    assert moves(moved(), ["id"], ["id"]) == {}
    assert moves(moved(transaction="y"), ["id", "large"], ["id"]) == {}
    assert moves(moved(), ["id", "large"], []) == {}


def test_without_transactions_an_equal_position_tells_a_move() -> None:
    pair = [
        change(operation="delete", before={"id": 1}, position="7"),
        change(operation="insert", after={"id": 2}, position="7"),
    ]
    assert moves(pair, ["id", "large"], ["id"]) == {1: {"id": 1}}
    pair[1].position = "8"
    assert moves(pair, ["id", "large"], ["id"]) == {}


def test_watermarks_are_the_newest_of_each_source() -> None:
    found = watermarks([change("a", "2", time_ms=20), change("a", "1", time_ms=10), change("b")])
    assert found == {"a": ("2", 20)}


def test_late_is_what_is_not_newer_than_what_is_visible() -> None:
    assert is_late([change("a", "2")], {"a": "2"})
    assert is_late([change("a", "3"), change("a", "1")], {"a": "2"})
    assert not is_late([change("a", "3"), change("b", "1"), change("a")], {"a": "2"})


def test_a_first_load_is_nothing_but_reads_of_one_position() -> None:
    reads = [change(operation="read", position="5"), change(operation="read", position="5")]
    assert load_key(reads) == "s:5"
    assert load_key([*reads, change(operation="read", position="6")]) is None
    assert load_key([*reads, change(operation="insert", position="5")]) is None
    assert load_key([]) is None
