"""Epochs: which changes begin a new history of a source, which belong to an earlier one, which are held."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.change import Change
from ingest.identity import old_key, split_key_change
from ingest.journal.encoded_request import in_epoch, runs_of
from ingest.journal.epochs import Hold, Run, SourceState, assign, begin_epoch

MINUTE = 60_000
LOG = Run("pg", "", "5", "6", 1000, 2000)
COUNTED = Run("app", "", f"{5:016x}", f"{6:016x}", 1000, 2000, is_counted=True)


def after(*runs: Run, name: str | None = None) -> SourceState:
    state = SourceState()
    for run in runs:
        found = assign(run, state, 0, name)
        assert not isinstance(found, Hold), found
        state = found[1]
    return state


def epoch_of(run: Run, state: SourceState, name: str | None = None) -> int | Hold:
    found = assign(run, state, 0, name)
    return found if isinstance(found, Hold) else found[0]


def at(run: Run, position: int, time_ms: int) -> Run:
    text = f"{position:016x}" if run.is_counted else str(position)
    return replace(run, low=text, high=text, oldest_ms=time_ms, newest_ms=time_ms)


def test_a_late_event_is_no_new_history() -> None:
    for run in (LOG, COUNTED):
        state = after(run)
        assert epoch_of(at(run, 3, 500), state) == 0
        assert epoch_of(at(run, 6, 2000), state) == 0


def test_positions_that_fall_while_the_time_rises_are_held() -> None:
    state = after(LOG)
    assert epoch_of(at(LOG, 3, 2000 + MINUTE), state) == 0  # clocks differ
    assert isinstance(epoch_of(at(LOG, 3, 2001 + MINUTE), state), Hold)
    assert epoch_of(at(LOG, 7, 2001 + MINUTE), state) == 0
    assert epoch_of(replace(at(LOG, 3, 2001 + MINUTE), may_fall=True), state) == 0  # a first load
    assert epoch_of(at(LOG, 3, 2001 + MINUTE), replace(state, may_fall=True)) == 0


def test_a_number_that_comes_again_with_a_later_time_is_held() -> None:
    state = after(COUNTED)
    assert isinstance(epoch_of(at(COUNTED, 1, 2001), state), Hold)
    assert isinstance(epoch_of(at(COUNTED, 6, 2001), state), Hold)
    assert epoch_of(at(COUNTED, 7, 2001), state) == 0


def test_a_name_begins_an_epoch_once() -> None:
    state = after(COUNTED, name="a")
    assert state.epoch == 0
    found = assign(at(COUNTED, 1, 9999), state, 7, "b")
    assert not isinstance(found, Hold)
    epoch, later = found
    assert (epoch, later.history[0]["epoch"], later.history[0]["began-ms"]) == (1, 1, 7)
    assert epoch_of(at(COUNTED, 2, 9999), later, "b") == 1
    assert epoch_of(at(COUNTED, 6, 2000), later, "a") == 0  # sent again


def test_another_server_begins_an_epoch_where_its_log_is_behind() -> None:
    first, second = replace(LOG, origin="1"), replace(LOG, origin="2")
    state = after(at(first, 7, 1))
    assert epoch_of(at(second, 8, 2), state) == 0  # two servers write into one log
    found = assign(at(second, 3, 2), state, 0)
    assert not isinstance(found, Hold)
    epoch, state = found
    assert epoch == 1
    assert epoch_of(at(first, 6, 1), state) == 0  # sent again, from before
    assert epoch_of(at(first, 8, 9), state) == 2  # it has taken over again


def test_a_new_epoch_forgets_times_and_what_is_held() -> None:
    state = begin_epoch(replace(after(LOG), held="why", held_ms=1, may_fall=True), 9, "a person")
    assert (state.epoch, state.time_ms, state.held, state.may_fall) == (1, None, None, False)
    assert epoch_of(at(LOG, 1, 10 * MINUTE), state) == 1


@given(st.lists(st.tuples(st.integers(0, 300), st.text(max_size=5)), min_size=2, max_size=6))
def test_positions_sort_by_their_epoch_first(pairs: list[tuple[int, str]]) -> None:
    known = [(epoch, f"{len(text):x}/a") for epoch, text in pairs]
    assert [in_epoch(p, e) for e, p in sorted(known)] == sorted(in_epoch(p, e) for e, p in known)


def test_the_runs_of_a_request() -> None:
    changes = [
        Change(0, ("t",), "insert", source="a", position="2", time_ms=5),
        Change(1, ("t",), "insert", source="b", position="9", time_ms=None),
        Change(2, ("t",), "insert", source="a", position="1", time_ms=3),
        Change(3, ("t",), "insert", position="1"),
    ]
    assert runs_of(changes) == [Run("a", "", "1", "2", 3, 5), Run("b", "", "9", "9")]


@pytest.mark.parametrize(
    ("before", "after_", "found"),
    [
        ({"id": 1}, {"id": 2}, {"id": 1}),
        ({"id": "1"}, {"id": 1}, None),
        ({"name": "a"}, {"id": 2}, None),
        ({"id": 1}, {"name": "a"}, None),
        (None, {"id": 2}, None),
    ],
)
def test_the_old_key_of_an_update(
    before: dict[str, object] | None, after_: dict[str, object], found: dict[str, object] | None
) -> None:
    change = Change(0, ("t",), "update", before, after_, number=7, source="s", position="p")
    assert old_key(change, ["id"]) == found
    pieces = split_key_change(change, ["id"], "3.0")
    assert [piece.operation for piece in pieces] == (["delete", "insert"] if found else ["update"])
    assert {piece.position for piece in pieces} == {"p"}
