"""Dates, times and timestamps in every form in which producers send them."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.types.errors import RejectedValue
from ingest.types.values import convert

EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - columns without a zone are meant
NOON_US = 1709210096789012  # 2024-02-29T12:34:56.789012
NOON_S = NOON_US - 789012


@pytest.mark.parametrize(
    ("days", "day"),
    [
        (19782, "2024-02-29"),
        (-1, "1969-12-31"),
        (-719162, "0001-01-01"),
        (2932896, "9999-12-31"),
        (0, "1970-01-01"),
    ],
)
def test_days(days: int, day: str) -> None:
    for value in (days, float(days), str(days), day, f"{day}Z", f"{day}T00:00:00", f"{day} 00:00:00.000"):
        assert convert("c", value, "date", "days") == days
    assert convert("c", days, "date") == days
    assert convert("c", day, "date") == days
    assert convert("c", days * 86_400_000, "date", "ms") == days


@pytest.mark.parametrize(
    ("value", "unit", "us"),
    [
        (NOON_US, "us", NOON_US),
        (NOON_US // 1000, "ms", NOON_US // 1000 * 1000),
        (NOON_US * 1000 + 999, "ns", NOON_US),
        (-1, "us", -1),
        (-1, "ns", -1),
        (-1, "ms", -1000),
        (-1001, "ns", -2),
        (str(NOON_US), "us", NOON_US),
        (19782, "days", 19782 * 86_400_000_000),
    ],
)
@pytest.mark.parametrize("type_", ["timestamp", "timestamptz"])
def test_instants_as_numbers(value: Any, unit: str, us: int, type_: str) -> None:
    assert convert("c", value, type_, unit) == us


def test_a_column_in_nanoseconds() -> None:
    assert convert("c", NOON_US * 1000 + 1, "timestamp_ns", "ns") == NOON_US * 1000 + 1
    assert convert("c", "2024-02-29T12:34:56.789012345", "timestamp_ns") == NOON_US * 1000 + 345


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("2024-02-29T12:34:56.789012", NOON_US),
        ("2024-02-29 12:34:56.789012", NOON_US),
        ("2024-02-29T12:34:56.789012Z", NOON_US),
        ("2024-02-29T12:34:56.789012345Z", NOON_US),
        ("2024-02-29T12:34:56,789012Z", NOON_US),
        ("2024-02-29T14:34:56.789012+02:00", NOON_US),
        ("2024-02-29T14:34:56.789012+0200", NOON_US),
        ("2024-02-29 14:34:56.789012+02", NOON_US),
        ("2024-02-29 04:04:56.789012-08:30", NOON_US),
        ("2024-02-29 12:34:56.789012 UTC", NOON_US),
        ("2024-02-29T12:34:56", NOON_S),
        ("2024-02-29T12:34", NOON_S - 56_000_000),
        ("2024-02-29", 19782 * 86_400_000_000),
        ("1969-12-31T23:59:59.999999", -1),
        ("1969-12-31T23:59:59.9999991", -1),
        ("0001-01-01T00:00:00Z", -719162 * 86_400_000_000),
        ("9999-12-31T23:59:59.999999Z", 2932897 * 86_400_000_000 - 1),
        ("+10000-01-01T00:00:00Z", 2932897 * 86_400_000_000),
        ("0044-03-15 12:00:00 BC", convert("c", "-0043-03-15T12:00:00", "timestamp")),
        (
            {"year": 2024, "month": 2, "day": 29, "hour": 12, "minute": 34, "second": 56, "nanos": 789012345},
            NOON_US,
        ),
    ],
)
@pytest.mark.parametrize("type_", ["timestamp", "timestamptz"])
def test_instants_as_text(text: Any, us: int, type_: str) -> None:
    assert convert("c", text, type_) == us
    assert convert("c", text, type_, "us") == us  # the plain form is taken whatever is declared


@pytest.mark.parametrize(
    ("value", "unit", "us"),
    [
        (45296789012, "us", 45296789012),
        (45296789, "ms", 45296789000),
        (45296789012999, "ns", 45296789012),
        ("12:34:56.789012", None, 45296789012),
        ("12:34:56.789Z", None, 45296789000),
        ("12:34", None, 45240000000),
        ({"hour": 12, "minute": 34, "second": 56, "nanos": 789000000}, None, 45296789000),
    ],
)
def test_times(value: Any, unit: str | None, us: int) -> None:
    assert convert("c", value, "time", unit) == us


@pytest.mark.parametrize(
    ("value", "encoding", "text"),
    [
        (45296789012, "time-us", "12:34:56.789012"),
        (45296789, "time-ms", "12:34:56.789000"),
        (0, "time-ns", "00:00:00.000000"),
        ("12:34:56.789Z", "time", "12:34:56.789000"),
        ("24:00:00", "time", "24:00:00"),
        ("12:00:00+02:00", "time", "12:00:00+02:00"),
        (3020399000000, "time-us", "838:59:59.000000"),
        (-3600000000, "time-us", "-01:00:00.000000"),
        ("-838:59:59", "time", "-838:59:59"),
    ],
)
def test_times_as_text_sort_by_time(value: Any, encoding: str, text: str) -> None:
    assert convert("c", value, "string", encoding) == text


@pytest.mark.parametrize("type_", ["date", "timestamp", "timestamptz"])
@pytest.mark.parametrize(
    ("value", "unit"),
    [
        ("infinity", None),
        ("-infinity", None),
        ("0000-00-00", None),
        ("0000-00-00 00:00:00", None),
        ("+292278994-08-16T23:00:00Z", None),
        ("-292275055-05-16T23:00:00Z", None),
        (2**63 - 1, "ns"),
        (-(2**63), "us"),
        (9223372036825200000, "us"),
        (-9223372036832400000, "ms"),
        ({"specialValue": "POSITIVE_INFINITY"}, None),
        ({"year": 0, "month": 0, "day": 0}, None),
    ],
)
def test_infinity_and_the_date_that_is_none_are_null(type_: str, value: Any, unit: str | None) -> None:
    assert convert("c", value, type_, unit) is None


def test_infinite_days() -> None:
    assert convert("c", 2**31 - 1, "date", "days") is None
    assert convert("c", -(2**31), "date", "days") is None


@pytest.mark.parametrize(
    ("value", "type_", "unit"),
    [
        ("2023-02-29", "date", None),
        ("2024-13-01", "date", None),
        ("2024-02-29T12:00:00", "date", None),
        ("20240229", "date", None),
        ("2024-2-9", "date", None),
        ("12:34:56", "date", None),
        ("", "date", None),
        ("Z", "timestamp", None),
        ("yesterday", "timestamptz", None),
        ("2024-02-29T24:00:00", "timestamp", None),
        ("2024-02-29T12:60", "timestamp", None),
        ("2024-02-29T12:00:00+25:00", "timestamptz", None),
        ("12:34:56", "timestamp", None),
        (1709210096789, "timestamp", None),  # of which unit?
        (1, "time", None),
        (True, "date", "days"),
        (1.5, "timestamp", "ms"),
        (2**63, "timestamp", "us"),
        (2**62, "timestamp", "ms"),
        (2**40, "date", "days"),
        (1, "date", "ms"),
        (86_400_000_000, "time", "us"),
        (-1, "time", "us"),
        ("24:00:00", "time", None),
        ("12:00:00+02:00", "time", None),
        ("2024-02-29T12:00:00", "time", None),
        ([], "date", None),
        ({}, "timestamp", None),
        ({"year": "x", "month": 1, "day": 1}, "date", None),
        ({"hour": 24, "minute": 0, "second": 0}, "time", None),
    ],
)
def test_what_is_refused(value: Any, type_: str, unit: str | None) -> None:
    with pytest.raises(RejectedValue):
        convert("c", value, type_, unit)


def test_a_number_without_unit_says_what_to_do() -> None:
    with pytest.raises(RejectedValue, match="a number needs its unit"):
        convert("at", 1709210096789, "timestamptz")


OFFSETS = st.integers(-18 * 60, 18 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@settings(deadline=None)
@given(st.datetimes(), st.sampled_from("T "))
def test_every_timestamp_python_can_write(moment: datetime, separator: str) -> None:
    us = (moment - EPOCH) // timedelta(microseconds=1)
    text = moment.isoformat(separator)
    assert convert("c", text, "timestamp") == us
    assert convert("c", f"{text}Z", "timestamptz") == us


@settings(deadline=None)
@given(st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=OFFSETS))  # noqa: DTZ001
def test_every_offset(moment: datetime) -> None:
    us = (moment - EPOCH.replace(tzinfo=UTC)) // timedelta(microseconds=1)
    assert convert("c", moment.isoformat(), "timestamptz") == us
    assert convert("c", moment.isoformat(), "timestamp") == us


@settings(deadline=None)
@given(st.dates())
def test_every_date(day: date) -> None:
    assert convert("c", day.isoformat(), "date") == (day - EPOCH.date()).days


@settings(deadline=None)
@given(st.times())
def test_every_time(clock: time) -> None:
    us = ((clock.hour * 60 + clock.minute) * 60 + clock.second) * 1_000_000 + clock.microsecond
    assert convert("c", clock.isoformat(), "time") == us
    assert convert("c", us, "string", "time-us") == clock.isoformat("microseconds")


@settings(deadline=None)
@given(st.integers(-(2**62), 2**62))
def test_nanoseconds_are_cut_towards_the_past(ns: int) -> None:
    us = convert("c", ns, "timestamp", "ns")
    assert us * 1000 <= ns < us * 1000 + 1000
