"""Kept moments as a pure function, against a model that looks at all numbers at once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.errors import Invalid
from maintenance.kept_moments import DEFAULT, KeptMomentsPolicy, duration_ms, duration_text, kept

POLICY = KeptMomentsPolicy.parse(DEFAULT)
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
NOW_MS = 1_800_000_000_000


def model(moments: list[tuple[int, int]], now_ms: int) -> set[int]:
    """The last number of each period, among all numbers that there have ever been."""
    found = {moments[-1][0]} if moments else set()
    for number, time_ms in moments:
        age_ms = now_ms - time_ms
        period_ms = next(
            (
                p
                for p, age in ((0, 10 * MINUTE), (MINUTE, 6 * HOUR), (HOUR, 7 * DAY), (DAY, 365 * DAY))
                if age_ms < age
            ),
            None,
        )
        if period_ms == 0:
            found.add(number)
        elif period_ms is not None:
            same = [n for n, ms in moments if ms // period_ms == time_ms // period_ms]
            if number == max(same):
                found.add(number)
    return found


ages = st.one_of(
    st.integers(0, 20 * MINUTE), st.integers(0, 8 * HOUR), st.integers(0, 9 * DAY), st.integers(0, 400 * DAY)
)
histories = st.lists(ages, max_size=60).map(
    lambda found: [(number, NOW_MS - age) for number, age in enumerate(sorted(found, reverse=True), 1)]
)


@given(histories)
def test_the_last_number_of_each_period_is_kept(moments: list[tuple[int, int]]) -> None:
    assert kept(moments, POLICY, NOW_MS) == model(moments, NOW_MS)


@given(histories, st.lists(st.integers(0, 400 * DAY), min_size=1, max_size=5))
def test_thinning_again_and_again_keeps_what_one_thinning_keeps(
    moments: list[tuple[int, int]], steps: list[int]
) -> None:
    left, now_ms = moments, NOW_MS
    for step in steps:
        now_ms += step
        numbers = kept(left, POLICY, now_ms)
        left = [moment for moment in left if moment[0] in numbers]
    assert {number for number, _ in left} == model(moments, now_ms)


def test_a_year_of_one_commit_a_second_leaves_about_1500_moments() -> None:
    seconds = [*range(0, 400 * DAY, HOUR // 2), *range(390 * DAY, 400 * DAY, 20_000)]
    moments = [(i, ms) for i, ms in enumerate(sorted({*seconds, *range(400 * DAY - HOUR, 400 * DAY, 1000)}))]
    numbers = kept(moments, POLICY, 400 * DAY)
    assert 600 + 350 + 160 + 350 < len(numbers) < 600 + 361 + 169 + 366


def test_the_newest_number_is_kept_however_old_it_is() -> None:
    assert kept([(1, 0), (2, 1)], POLICY, NOW_MS) == {2}


@pytest.mark.parametrize("text", ["", "1m:6h", "all:10m, 1m:5m", "all:10m, 1h:6h, 1m:7d", "all:x", "all:0m"])
def test_a_policy_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        KeptMomentsPolicy.parse(text)


def test_a_policy_reads_back_as_it_is_written() -> None:
    assert str(POLICY) == DEFAULT
    assert KeptMomentsPolicy.parse(str(POLICY)) == POLICY


@given(st.integers(1, 10**9))
def test_durations_read_back(ms: int) -> None:
    assert duration_ms(duration_text(ms)) == ms
