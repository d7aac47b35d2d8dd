"""Identities in memory: known for the window, then forgotten, and never too many."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ingest.journal.sources import FORGET_AT_A_TIME, DeduplicationWindow

WINDOW_MS = 800


def _mark(number: int) -> bytes:
    return number.to_bytes(15, "big")


@given(st.lists(st.tuples(st.integers(0, 300), st.lists(st.integers(0, 40), max_size=5)), max_size=20))
def test_known_for_the_window_and_no_longer(steps: list[tuple[int, list[int]]]) -> None:
    window = DeduplicationWindow(10_000)
    now_ms, expires = 0, dict[int, int]()
    for passed_ms, numbers in steps:
        now_ms += passed_ms
        window.add([_mark(number) for number in numbers], now_ms + WINDOW_MS)
        expires |= dict.fromkeys(numbers, now_ms + WINDOW_MS)
        assert window.forget(now_ms) == 0
        known = window.known({_mark(number) for number in range(41)}, now_ms)
        assert known == {_mark(number) for number, until in expires.items() if until > now_ms}
        assert len(window) == len(known)


def test_too_many_push_out_the_oldest() -> None:
    window = DeduplicationWindow(10)
    for step in range(5):
        window.add([_mark(step * 4 + place) for place in range(4)], step * 100 + WINDOW_MS)
    assert window.forget(400) == 12
    assert len(window) == 8
    assert window.known({_mark(11), _mark(12)}, 400) == {_mark(12)}


def test_very_many_are_forgotten_in_steps_but_not_known_any_more() -> None:
    window = DeduplicationWindow(10**9)
    for step in range(10):
        window.add([_mark(step * FORGET_AT_A_TIME + place) for place in range(FORGET_AT_A_TIME)], 100)
    assert window.known({_mark(1)}, 99) == {_mark(1)}
    assert window.known({_mark(1)}, 100) == set()
    sizes = []
    while len(window):
        window.forget(100)
        sizes.append(len(window))
    assert sizes == [FORGET_AT_A_TIME * left for left in range(9, -1, -1)]


def test_one_that_was_renewed_stays() -> None:
    window = DeduplicationWindow(100)
    window.add([_mark(1)], 100)
    window.add([_mark(1)], 200)
    window.forget(150)
    assert window.known({_mark(1)}, 150) == {_mark(1)}
