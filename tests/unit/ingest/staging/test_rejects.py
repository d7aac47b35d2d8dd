"""Which changes wait for an earlier one of their row."""

from __future__ import annotations

from typing import Any

from ingest.change import Change
from ingest.identity import ArrivedChange
from ingest.journal.dead_letters import DeadLetter, letter_id, replay_identity, replayed_letter
from ingest.staging.rejects import blocked_changes, comparable_key

T = ("ns", "t")
KEY = ("id",)


def change(id_: Any, position: str = "", *, source: str = "s", **more: Any) -> Change:
    row = None if more.get("row_id") else {"id": id_}
    return Change(0, T, "update", after=row, source=source, position=position, **more)


def arrived(*changes: Change, journal_id: int = 10) -> list[ArrivedChange]:
    return [ArrivedChange(journal_id, number, item) for number, item in enumerate(changes)]


def letter(id_: Any, position: str = "", *, journal_id: int = 1, ordinal: int = 0) -> DeadLetter:
    name = letter_id("main", T, journal_id, ordinal)
    return DeadLetter(
        name, "main", T, journal_id, ordinal, f"[{id_}]", "unfit", "why", b"", "s", position, 0, changed_ms=5
    )


def places(found: dict[tuple[int, int], str]) -> list[int]:
    return [ordinal for _, ordinal in found]


def test_later_changes_of_a_row_wait_for_one_of_the_batch() -> None:
    batch = arrived(change(1), change(1), change(2), change(1))
    assert places(blocked_changes(batch, {(10, 1)}, [], KEY, 9)) == [3]


def test_changes_wait_for_a_letter_of_their_row() -> None:
    batch = arrived(change(1, "5"), change(2, "6"), change(1, "7"))
    found = blocked_changes(batch, set(), [letter(1, "3")], KEY, 9)
    assert places(found) == [0, 2]
    assert letter(1).id in found[10, 0]


def test_an_older_change_does_not_wait() -> None:
    batch = arrived(change(1, "2"), change(1, "4"))
    assert places(blocked_changes(batch, set(), [letter(1, "3")], KEY, 9)) == [1]


def test_letters_that_an_earlier_attempt_at_this_batch_left_say_nothing() -> None:
    batch = arrived(change(1, "5"), change(1, "6"))
    assert blocked_changes(batch, set(), [letter(1, "6", journal_id=10, ordinal=1)], KEY, 9) == {}


def test_a_letter_on_its_way_back_waits_for_no_other_that_comes_along() -> None:
    bad, waiting = letter(1, "3"), letter(1, "4", ordinal=1)
    back = [replay_identity(item.id, item.changed_ms, 0) for item in (bad, waiting)]
    batch = arrived(change(1, "3", identity=back[0]), change(1, "4", identity=back[1]), change(1, "5"))
    assert blocked_changes(batch, set(), [bad, waiting], KEY, 9) == {}
    # ... but for one that is bad once more,
    assert places(blocked_changes(batch, {(10, 0)}, [bad, waiting], KEY, 9)) == [1, 2]
    # ... and for one that stays behind.
    assert places(blocked_changes(arrived(batch[1].change), set(), [bad, waiting], KEY, 9)) == [0]
    assert blocked_changes(arrived(batch[0].change), set(), [bad, waiting], KEY, 9) == {}


def test_without_positions_the_journal_tells_what_is_earlier() -> None:
    first, second = letter(1), letter(1, ordinal=1)
    back = {item.id: change(1, identity=replay_identity(item.id, 5, 0)) for item in (first, second)}
    assert blocked_changes(arrived(back[first.id]), set(), [first, second], KEY, 9) == {}
    assert places(blocked_changes(arrived(back[second.id]), set(), [first, second], KEY, 9)) == [0]


def test_a_row_that_is_only_named_is_the_same_row() -> None:
    assert comparable_key(change(0, row_id="1"), KEY) == comparable_key(change(1), KEY)
    assert places(blocked_changes(arrived(change(0, "9", row_id="1")), set(), [letter(1, "3")], KEY, 9)) == [
        0
    ]
    assert comparable_key(change(0, row_id="1"), ("a", "b")) is None


def test_the_letter_of_a_replay_is_known() -> None:
    assert replayed_letter(change(1, identity=replay_identity("1.-2.abcd", 7, 0))) == "1.-2.abcd"
    assert replayed_letter(change(1, identity="x:1")) is None
