"""Intervals against a plain set of numbers."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from ingest.journal.numbers import Ranges, difference, runs

NUMBERS = st.lists(st.integers(-20, 20), max_size=30)


@given(st.lists(NUMBERS, max_size=6))
def test_they_are_the_set_of_what_was_taken(batches: list[list[int]]) -> None:
    ranges, model = Ranges(), set[int]()
    for batch in batches:
        expected = []
        for place, number in enumerate(batch):
            if number in model:
                expected.append(place)
            model.add(number)
        assert ranges.take(batch) == expected
        spans = ranges.spans()
        assert {n for first, last in spans for n in range(first, last + 1)} == model
        assert all(before[1] + 1 < after[0] for before, after in itertools.pairwise(spans))


@given(NUMBERS, NUMBERS)
def test_writing_the_difference_gives_the_new_ones(old: list[int], new: list[int]) -> None:
    ranges = Ranges()
    ranges.take(old)
    before = ranges.spans()
    ranges.take(new)
    gone, grown = difference(before, ranges.spans())
    rows = dict(before)
    for first in gone:
        del rows[first]
    rows |= dict(grown)
    assert sorted(rows.items()) == ranges.spans()


@given(NUMBERS)
def test_runs_are_stretches_that_count_up(numbers: list[int]) -> None:
    found = runs(numbers)
    assert [numbers[place] for start, end in found for place in range(start, end)] == numbers
    for start, end in found:
        assert numbers[start:end] == list(range(numbers[start], numbers[start] + end - start))
    for (_, end), (start, _) in itertools.pairwise(found):
        assert end == start
        assert numbers[start] != numbers[end - 1] + 1


def test_a_span_of_which_a_part_is_known_is_not_taken() -> None:
    ranges = Ranges([(1, 3), (10, 12)])
    assert not ranges.add_span(3, 5)
    assert not ranges.add_span(0, 20)
    assert ranges.spans() == [(1, 3), (10, 12)]
    assert ranges.add_span(4, 9)
    assert ranges.spans() == [(1, 12)]
