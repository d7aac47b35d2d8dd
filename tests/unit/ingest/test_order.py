"""The order inside a batch, repeats, key changes, watermarks."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ingest.change import Change, position_of
from ingest.identity import (
    ArrivedChange,
    after_loads,
    in_order,
    is_late,
    key_changes,
    load_key,
    may_be_repeated,
    watermarks,
    without_repeats,
)

T = ("ns", "t")


def change(source: str = "s", position: str = "", **more: Any) -> Change:
    return Change(0, T, more.pop("operation", "insert"), source=source, position=position, **more)


def arrived(changes: list[Change]) -> list[ArrivedChange]:
    return [ArrivedChange(number, 0, item) for number, item in enumerate(changes)]


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
    about = {"transaction": "x", "unchanged": ("large",), **more}
    return [
        change(operation="delete", before={"id": 1}, transaction="x"),
        change(operation="insert", after={"id": 2}, **about),
    ]


def test_an_insert_with_unchanged_values_takes_them_from_the_row_just_deleted() -> None:
    assert key_changes(moved(), ["id"]) == {1: {"id": 1}}


def test_a_soft_delete_is_half_of_a_key_change_too() -> None:
    pair = moved()
    pair[0].operation, pair[0].after = "update", {"_is_deleted": True}
    assert key_changes(pair, ["id"]) == {1: {"id": 1}}


def test_no_move_without_an_unchanged_value_a_common_transaction_or_a_key() -> None:
    assert key_changes(moved(unchanged=()), ["id"]) == {}
    assert key_changes(moved(unchanged=None), ["id"]) == {}  # the row is new: what it lacks is null
    assert key_changes(moved(transaction="y"), ["id"]) == {}
    assert key_changes(moved(), []) == {}


def test_without_transactions_an_equal_position_tells_a_move() -> None:
    pair = [
        change(operation="delete", before={"id": 1}, position="7"),
        change(operation="insert", after={"id": 2}, position="7", unchanged=("large",)),
    ]
    assert key_changes(pair, ["id"]) == {1: {"id": 1}}
    pair[1].position = "8"
    assert key_changes(pair, ["id"]) == {}


def test_watermarks_are_the_newest_of_each_source() -> None:
    found = watermarks([change("a", "2", time_ms=20), change("a", "1", time_ms=10), change("b")])
    assert found == {"a": ("2", 20)}


def test_late_is_what_is_not_newer_than_what_is_visible() -> None:
    assert is_late([change("a", "2")], {"a": "2"})
    assert is_late([change("a", "3"), change("a", "1")], {"a": "2"})
    assert not is_late([change("a", "3"), change("b", "1"), change("a")], {"a": "2"})


def test_an_old_event_without_a_number_or_position_may_be_a_repeat() -> None:
    """The journal knows identities for a while only. An event that is older at its source may have come."""
    assert may_be_repeated([change(), change(identity="x", time_ms=9)], 10)
    for fine in (
        change(identity="x", time_ms=10),  # it would be known
        change(identity="x"),
        change(time_ms=9),
        change(identity="x", position="1", time_ms=9),  # its position tells
        change(identity="x", number=1, time_ms=9),  # numbers are known for ever
    ):
        assert not may_be_repeated([fine], 10)


def test_a_first_load_is_nothing_but_reads_of_one_position() -> None:
    reads = [change(operation="read", position="5"), change(operation="read", position="5")]
    assert load_key(reads) == "s:5"
    assert load_key([*reads, change(operation="read", position="6")]) is None
    assert load_key([*reads, change(operation="insert", position="5")]) is None
    assert load_key([]) is None


# Each function has a short way for the usual batch. What it answers is what the changes say one by one.

POSITIONS = st.sampled_from(["", "1", "2", "3", position_of(S, S, 0), position_of(BEFORE_S, BEFORE_S, 1)])
CHANGES = st.builds(
    change,
    st.sampled_from(["a", "b"]),
    POSITIONS,
    operation=st.sampled_from(["insert", "update", "delete", "read"]),
    identity=st.sampled_from(["", "x", "y", "z"]),
    number=st.none() | st.integers(0, 9),
    time_ms=st.none() | st.integers(0, 9),
)


@st.composite
def batches(draw: st.DrawFn) -> list[Change]:
    """Mixed ones, and usual ones: of one source, with positions or numbers that rise, or without any."""
    found = draw(st.lists(CHANGES, max_size=8))
    usual = draw(st.sets(st.sampled_from(["source", "position", "number", "bare"])))
    rising = sorted(one.position for one in found)
    for place, one in enumerate(found):
        one.source = "a" if "source" in usual else one.source
        one.position = rising[place] if "position" in usual else one.position
        one.number = place if "number" in usual else one.number
        if "bare" in usual:
            one.number, one.identity = None, ""
    return found


KNOWN = st.dictionaries(st.sampled_from(["a", "b"]), POSITIONS)


@given(batches())
def test_the_order_is_that_of_each_source(changes: list[Change]) -> None:
    places: dict[str, list[int]] = {}
    for place, one in enumerate(changes):
        if one.position:
            places.setdefault(one.source, []).append(place)
    expected = list(range(len(changes)))
    for mine in places.values():
        moved_ = sorted(mine, key=lambda place: changes[place].position)
        for place, taken in zip(mine, moved_, strict=True):
            expected[place] = taken
    assert [item.journal_id for item in in_order(arrived(changes))] == expected


@given(batches())
def test_repeats_are_told_by_source_and_number_or_identity(changes: list[Change]) -> None:
    seen, expected = set(), []
    for place, one in enumerate(changes):
        mark = (one.source, one.identity if one.number is None else one.number)
        if mark not in seen or mark[1] == "":
            expected.append(place)
        seen.add(mark)
    assert [item.journal_id for item in without_repeats(arrived(changes))] == expected


@given(batches(), KNOWN)
def test_only_a_load_moves_anything(changes: list[Change], known: dict[str, str]) -> None:
    before = [one.position for one in changes]
    found = [item.change.position for item in after_loads(arrived(changes), known)]
    load = position_of(S, S, 0)
    expected, loaded_ = [], {source for source, position in known.items() if position == load}
    for one, position in zip(changes, before, strict=True):
        if one.operation == "read" and position == load:
            loaded_.add(one.source)
        early = one.operation != "read" and position == position_of(BEFORE_S, BEFORE_S, 1)
        expected.append(position_of(S + 1, BEFORE_S, 1) if early and one.source in loaded_ else position)
    assert found == expected


@given(batches(), KNOWN)
def test_watermarks_and_lateness_are_those_of_the_single_changes(
    changes: list[Change], known: dict[str, str]
) -> None:
    newest: dict[str, tuple[str, int | None]] = {}
    for one in changes:
        if one.position and one.position >= newest.get(one.source, ("", None))[0]:
            newest[one.source] = (one.position, one.time_ms)
    assert watermarks(changes) == newest
    late = [one for one in changes if one.position and one.position <= known.get(one.source, "")]
    assert is_late(changes, known) == bool(late)


@given(batches())
def test_a_move_is_a_delete_with_an_insert_behind_it(changes: list[Change]) -> None:
    for one in changes:
        one.before, one.after, one.unchanged = {"id": 1}, {"id": 2}, ("large",)
    expected = [
        row
        for row, (former, one) in enumerate(pairwise(changes), 1)
        if (former.operation, one.operation) == ("delete", "insert")
        and former.source == one.source
        and former.position == one.position != ""
    ]
    assert list(key_changes(changes, ["id"])) == expected


@given(batches(), st.booleans())
def test_a_load_is_one_source_and_one_position(changes: list[Change], reads: bool) -> None:
    for one in changes:
        one.operation = "read" if reads else one.operation
    facts = {(one.operation, one.source, one.position) for one in changes}
    only = next(iter(facts)) if len(facts) == 1 else ("", "", "")
    wanted = f"{only[1]}:{only[2]}" if only[0] == "read" and only[2] else None
    assert load_key(changes) == wanted
