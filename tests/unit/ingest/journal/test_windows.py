"""Identities in memory: known for the window, then forgotten, and never too many."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ingest.journal.windows import GENERATIONS, Window

WINDOW_MS = 800


def _mark(number: int) -> bytes:
    return number.to_bytes(15, "big")


@given(st.lists(st.tuples(st.integers(0, 300), st.lists(st.integers(0, 40), max_size=5)), max_size=20))
def test_known_at_least_for_the_window_and_an_eighth_longer_at_most(
    steps: list[tuple[int, list[int]]],
) -> None:
    window = Window(WINDOW_MS, 10_000)
    now_ms, expires = 0, dict[int, int]()
    for passed_ms, numbers in steps:
        now_ms += passed_ms
        window.add([_mark(number) for number in numbers], now_ms + WINDOW_MS)
        expires |= dict.fromkeys(numbers, now_ms + WINDOW_MS)
        window.forget(now_ms)
        known = {int.from_bytes(mark, "big") for mark in window.known([_mark(n) for n in range(41)])}
        assert {number for number, until in expires.items() if until > now_ms} <= known
        assert {n for n, until in expires.items() if until + WINDOW_MS // GENERATIONS > now_ms} >= known


def test_too_many_push_out_the_oldest() -> None:
    window = Window(WINDOW_MS, 10)
    for step in range(5):
        window.add([_mark(step * 4 + place) for place in range(4)], step * 100 + WINDOW_MS)
    assert window.forget(400) == 12
    assert len(window) == 8
    assert window.known([_mark(11), _mark(12)]) == {_mark(12)}
