"""Dates, times and timestamps: from what producers write to days, or microseconds, since the epoch.

A number needs its unit (`days`, `ms`, `us`, `ns`); only for a date it is plain: days. Finer units are cut
down towards the past, so that -1 ns is the last microsecond of 1969. Text is ISO 8601 with T or a space, with
or without a zone; without one it is UTC, and for a column without zone an offset is applied, so that the
instant stays. Also read: Debezium's structs ({"year", "month", ...}), and PostgreSQL's years before Christ.

What the source calls infinity, and MySQL's 0000-00-00, is null.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Any

from ingest.types.errors import ConversionError

US_PER_SECOND = 1_000_000
US_PER_DAY = 86_400 * US_PER_SECOND
LONG_END = 2**63
INT_END = 2**31

NS_PER = {"ns": 1, "us": 1_000, "ms": 1_000_000, "days": 86_400 * 10**9}

# The driver's constants for infinity, in any unit, and the ends of the range.
_INFINITIES = frozenset({9223372036825200000, -9223372036832400000, LONG_END - 1, -LONG_END})
_INFINITE_DAYS = frozenset({INT_END - 1, -INT_END})
_INFINITE_YEARS = frozenset({292278994, -292275055})  # the same constants, written as text
_NO_DATE = ("0000-00-00", "infinity", "-infinity", "+infinity")

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - what it is added to has no zone
_EPOCH_ORDINAL = _EPOCH.toordinal()
_DAYS_PER_400_YEARS = 146_097

_ISO = re.compile(
    r"(?:(?P<date>[+-]?\d{4,9}-\d\d-\d\d)(?:[Tt ](?=\d)|(?=$|[Zz+]|\ BC)))?"
    r"(?P<time>\d\d:\d\d(?::\d\d(?:[.,]\d{1,12})?)?)?"
    r"\ ?(?P<zone>[Zz]|UTC|[+-]\d\d(?::?\d\d(?::?\d\d)?)?)?"
    r"(?P<bc>\ BC)?",
    re.ASCII,
)
_WHOLE = re.compile(r"[+-]?\d{1,20}", re.ASCII)

Moment = tuple[int | None, int | None, int]  # days, nanoseconds of the day, offset in seconds


def days_of(value: Any, unit: str | None) -> int | None:
    """Return the days since the epoch, for a date."""
    # Digits as text are days only if that is declared: 20240229 is not a number of days.
    number = _number(value, unit if type(value) is str else unit or "days")
    if number is not None:
        return _days_from(number, unit or "days")
    moment = _moment(value)
    if moment is None:
        return None
    days, ns, _ = moment
    if days is None:
        raise ConversionError("it has no date")
    if ns:
        raise ConversionError("it has a time of day")
    return _in_range(days, INT_END)


def _days_from(number: int, unit: str) -> int | None:
    if number in _INFINITIES or (unit == "days" and number in _INFINITE_DAYS):
        return None
    days, rest = divmod(number * NS_PER[unit], NS_PER["days"])
    if rest:
        raise ConversionError("it has a time of day")
    return _in_range(days, INT_END)


def time_us_of(value: Any, unit: str | None) -> int | None:
    """Return the microseconds of the day, for a time."""
    number = _number(value, unit)
    us = _clock_of_text(value) if number is None else number * NS_PER[unit or "us"] // 1_000
    if not 0 <= us < US_PER_DAY:
        raise ConversionError("a time is from 00:00:00 until before 24:00:00")
    return us


def clock_text(value: Any, unit: str | None) -> str:
    """Return a time as text, HH:MM:SS.ffffff, so that it sorts; it may exceed a day, as in MySQL.

    Text that no time type can hold (24:00:00, an offset) stays as it is.
    """
    number = _number(value, unit)
    try:
        us = _clock_of_text(value) if number is None else number * NS_PER[unit or "us"] // 1_000
    except ConversionError:
        if isinstance(value, str):
            return value
        raise
    seconds, fraction = divmod(abs(us), US_PER_SECOND)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return f"{'-' if us < 0 else ''}{hour:02d}:{minute:02d}:{second:02d}.{fraction:06d}"


def _clock_of_text(value: Any) -> int:
    moment = _moment(value)
    if moment is None or moment[0] is not None or moment[1] is None:
        raise ConversionError("not a time")
    if moment[2]:
        raise ConversionError("it has an offset, for which a time has no place")
    return moment[1] // 1_000


def timestamp_of(value: Any, unit: str | None, ns_per_tick: int = 1_000) -> int | None:
    """Return the microseconds (or another tick) since the epoch, for a timestamp with or without zone."""
    number = _number(value, unit)
    if number is not None:
        if number in _INFINITIES:
            return None
        return _in_range(number * NS_PER[unit or "us"] // ns_per_tick, LONG_END)
    moment = _moment(value)
    if moment is None:
        return None
    days, ns, offset = moment
    if days is None:
        raise ConversionError("it has no date")
    total = days * NS_PER["days"] + (ns or 0) - offset * 10**9
    return _in_range(total // ns_per_tick, LONG_END)


def iso_text(number: int, unit: str) -> str | None:
    """Return a date or timestamp that is sent as a number, as text: for a column of text."""
    if unit == "days":
        days = _days_from(number, unit)
        return None if days is None else date.fromordinal(_EPOCH_ORDINAL + days).isoformat()
    us = timestamp_of(number, unit)
    return None if us is None else (_EPOCH + timedelta(microseconds=us)).isoformat()


def _number(value: Any, unit: str | None) -> int | None:
    """Return the number; None if the value is not one."""
    kind = type(value)
    if kind is str:
        # Some producers write every value as text. Without a unit, digits alone are not a date.
        return int(value) if unit is not None and _WHOLE.fullmatch(value) else None
    if kind is int:
        number: int = value
    elif kind is float and value.is_integer():
        number = int(value)
    elif kind is dict:
        return None
    else:
        raise ConversionError("not a date or time")
    if unit is None:
        raise ConversionError(
            "a number needs its unit (days, ms, us or ns): declare it, or send ISO 8601 text"
        )
    return number


def _in_range(number: int, end: int) -> int:
    if not -end <= number < end:
        raise ConversionError("out of range")
    return number


def _moment(value: Any) -> Moment | None:
    """Return the parts of a text or of a Debezium struct; None if it is neither."""
    if type(value) is dict:
        return _of_struct(value)
    text: str = value.strip()
    if text.startswith("0000-00-00") or text.lower() in _NO_DATE:
        return None
    match = _ISO.fullmatch(text)
    if match is None or not (match["date"] or match["time"]):
        raise ConversionError("not an ISO 8601 date or time")
    days = None
    if match["date"]:
        year, month, day = match["date"].rsplit("-", 2)
        if int(year) in _INFINITE_YEARS:
            return None
        days = _civil_days(1 - int(year) if match["bc"] else int(year), int(month), int(day))
    clock = _clock_ns(match["time"]) if match["time"] else None
    return days, clock, _offset_s(match["zone"])


def _of_struct(parts: dict[str, Any]) -> Moment | None:
    if parts.get("specialValue") is not None:
        return None
    try:
        days = None
        if "year" in parts:
            if not (parts["year"] or parts["month"] or parts["day"]):
                return None
            days = _civil_days(parts["year"], parts["month"], parts["day"])
        clock = None
        if "hour" in parts:
            seconds = _checked_clock(parts["hour"], parts["minute"], parts["second"])
            clock = seconds * 10**9 + int(parts.get("nanos") or 0)
        offset = int(parts.get("offsetSeconds") or 0)
    except (KeyError, TypeError) as wrong:
        raise ConversionError("not a date or time") from wrong
    if days is None and clock is None:
        raise ConversionError("not a date or time")
    return days, clock, offset


def _civil_days(year: int, month: int, day: int) -> int:
    """Return the days for any year of the proleptic calendar: Python's calendar ends at 1 and 9999, and 400
    years repeat exactly.
    """
    cycles, year_of_cycle = divmod(year, 400)
    try:
        ordinal = date(year_of_cycle + 400, month, day).toordinal()
    except ValueError as wrong:
        raise ConversionError("no such day") from wrong
    return ordinal + (cycles - 1) * _DAYS_PER_400_YEARS - _EPOCH_ORDINAL


def _clock_ns(text: str) -> int:
    clock, _, fraction = text.replace(",", ".").partition(".")
    parts = [int(part) for part in clock.split(":")]
    seconds = _checked_clock(parts[0], parts[1], parts[2] if len(parts) > 2 else 0)
    return seconds * 10**9 + int(fraction[:9].ljust(9, "0"))


def _checked_clock(hour: int, minute: int, second: int) -> int:
    if not (0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60):
        raise ConversionError("no such time of day")
    return hour * 3600 + minute * 60 + second


def _offset_s(zone: str | None) -> int:
    if zone is None or zone[0] not in "+-":
        return 0
    digits = zone[1:].replace(":", "").ljust(6, "0")
    hour, minute, second = int(digits[:2]), int(digits[2:4]), int(digits[4:])
    if hour > 23 or minute > 59 or second > 59:
        raise ConversionError("no such offset")
    return (-1 if zone[0] == "-" else 1) * (hour * 3600 + minute * 60 + second)


def converter(kind: str, unit: str | None) -> Callable[[Any], int | None]:
    """Return the conversion for a target of this kind (`date`, `time`, `timestamptz`, ...)."""
    if kind == "date":
        return lambda value: days_of(value, unit)
    if kind == "time":
        return lambda value: time_us_of(value, unit)
    ns_per_tick = 1 if kind.endswith("_ns") else 1_000
    return lambda value: timestamp_of(value, unit, ns_per_tick)
