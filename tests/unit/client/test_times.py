"""Moments as people write them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calve.client.times import Moment, moment_parameter

NOW = datetime(2026, 11, 18, 12, 30, 15, 250_000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        (None, None),
        (1234, 1234),
        (1763424000000, 1763424000000),
        ("1234", "1234"),
        ("now", "now"),
        ("main:77", "main:77"),
        ("2026-11-15T00:00:00Z", "2026-11-15T00:00:00Z"),
        (" 2026-11-15 00:00 ", "2026-11-15 00:00"),
        ("1 minute ago", "2026-11-18T12:29:15.250Z"),
        ("a minute ago", "2026-11-18T12:29:15.250Z"),
        ("2 hours ago", "2026-11-18T10:30:15.250Z"),
        ("an hour ago", "2026-11-18T11:30:15.250Z"),
        ("  90   SECONDS ago ", "2026-11-18T12:28:45.250Z"),
        ("250ms ago", "2026-11-18T12:30:15.000Z"),
        ("5m ago", "2026-11-18T12:25:15.250Z"),
        ("3 days ago", "2026-11-15T12:30:15.250Z"),
        ("2 weeks ago", "2026-11-04T12:30:15.250Z"),
        ("yesterday", "2026-11-17T12:30:15.250Z"),
        ("Yesterday", "2026-11-17T12:30:15.250Z"),
        (date(2026, 11, 15), "2026-11-15"),
        (datetime(2026, 11, 15, 1, tzinfo=timezone(timedelta(hours=2))), "2026-11-14T23:00:00.000Z"),
    ],
)
def test_a_moment(moment: Moment | None, expected: str | int | None) -> None:
    assert moment_parameter(moment, NOW) == expected


@pytest.mark.parametrize(
    ("moment", "word"),
    [
        ("3 moons ago", "moons"),
        ("999999999 weeks ago", "year 1"),
        (datetime(2026, 11, 15), "time zone"),  # noqa: DTZ001 - that is the point
    ],
)
def test_no_moment(moment: Moment, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        moment_parameter(moment, NOW)


@given(st.integers(0, 100_000), st.sampled_from(["second", "minute", "hour", "day", "week"]))
def test_one_and_many_are_the_same_unit(count: int, unit: str) -> None:
    words = f"{count} {unit} ago"
    assert moment_parameter(words, NOW) == moment_parameter(words.replace(unit, f"{unit}s"), NOW)
