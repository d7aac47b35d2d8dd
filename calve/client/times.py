"""Moments as people write them: "1 minute ago", "yesterday", a datetime. Pure."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

Moment = str | int | datetime | date
"""A time (ISO 8601 text, datetime, milliseconds since 1970), the number of a commit, or words."""

_AGO = re.compile(r"(an?|\d{1,9})\s*([a-z]+)\s+ago", re.IGNORECASE)
_UNITS = {
    "ms": timedelta(milliseconds=1),
    "millisecond": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "sec": timedelta(seconds=1),
    "second": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "min": timedelta(minutes=1),
    "minute": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "hour": timedelta(hours=1),
    "d": timedelta(days=1),
    "day": timedelta(days=1),
    "w": timedelta(weeks=1),
    "week": timedelta(weeks=1),
}


def moment_parameter(moment: Moment | None, now: datetime | None = None) -> str | int | None:
    """The moment as the server reads it. ValueError if it cannot be one.

    Words are counted from `now`; `yesterday` is 24 hours before it. Other text is left to the server.
    """
    if isinstance(moment, datetime):
        return _text(moment)
    if isinstance(moment, date):
        return moment.isoformat()
    if not isinstance(moment, str):
        return moment
    words = " ".join(moment.split())
    if words.lower() == "yesterday":
        words = "1 day ago"
    found = _AGO.fullmatch(words)
    return _text(_before(now or datetime.now(UTC), found[1], found[2])) if found else words


def _before(now: datetime, count: str, unit: str) -> datetime:
    name = unit.lower()
    length = _UNITS.get(name) or _UNITS.get(name.removesuffix("s"))
    if length is None:
        raise ValueError(f"{unit} is no unit of time: use seconds, minutes, hours, days or weeks")
    try:
        return now - (length * int(count) if count.isdecimal() else length)
    except OverflowError:
        raise ValueError(f"{count} {unit} ago is before the year 1") from None


def _text(time: datetime) -> str:
    if time.tzinfo is None:
        raise ValueError("the datetime has no time zone: use datetime.now(UTC), or .astimezone() for local")
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
