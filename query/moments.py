"""Parse `as_of`: the moment that a request reads.

1234                          after the commit of this number
1763424000000                 a time in milliseconds since 1970 (from 100,000,000,000 on)
"2026-11-15T00:00:00Z"        a time; without an offset it is UTC, without a time of day it is midnight
"5 minutes ago", "an hour ago", "yesterday" (24 hours ago), "now"
"main:77"                     the token of an acknowledgement: now, once its changes are visible
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from catalog.errors import Invalid
from catalog.moments import AtNumber, AtTime, Now, moment_from_text

EPOCH_MS_MIN = 100_000_000_000  # a smaller number is the number of a commit
_AGO = re.compile(
    r"(an?|\d{1,9})\s*(ms|s|sec|second|m|min|minute|h|hour|d|day|w|week)s?\s+ago", re.IGNORECASE
)
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_TOKEN = re.compile(r"([A-Za-z0-9][A-Za-z0-9_-]{0,62}):(\d{1,18})")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_LOCAL_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d)(:\d\d(?:\.\d{1,9})?)?(Z|[+-]\d\d(?::?\d\d)?)?", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class AtToken:
    """The present, once everything up to a token of /cdc is visible."""

    warehouse: str
    journal_id: int


RequestedMoment = AtNumber | AtTime | Now | AtToken


def requested_moment(value: str | float | None, now_ms: int) -> RequestedMoment:
    """Return the moment of `as_of`. Invalid with the reason."""
    if value is None:
        return Now()
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise _refused(value)
    text = str(int(value)) if isinstance(value, int | float) else value.strip()
    if text.isascii() and text.isdigit() and len(text) <= 18:
        number = int(text)
        return AtTime(number) if number >= EPOCH_MS_MIN else AtNumber(number)
    if text.lower() == "now":
        return Now()
    if (found := _AGO.fullmatch("1 day ago" if text.lower() == "yesterday" else text)) is not None:
        unit = found[2].lower()
        count = int(found[1]) if found[1].isdecimal() else 1
        return AtTime(now_ms - count * _UNIT_MS["ms" if unit == "ms" else unit[0]])
    found = _TOKEN.fullmatch(text)
    if found is not None and _LOCAL_TIME.fullmatch(text) is None:
        return AtToken(found[1], int(found[2]))
    return _time(text, value)


def _time(text: str, value: object) -> RequestedMoment:
    if _DATE.fullmatch(text):
        return moment_from_text(f"{text}T00:00:00Z")
    found = _LOCAL_TIME.fullmatch(text)
    if found is None:
        raise _refused(value)
    date, minutes, seconds, offset = found.groups()
    offset = (offset or "Z").upper()
    if offset != "Z":
        digits = offset[1:].replace(":", "").ljust(4, "0")
        offset = f"{offset[0]}{digits[:2]}:{digits[2:]}"
    return moment_from_text(f"{date}T{minutes}{seconds or ':00'}{offset}")


def _refused(value: object) -> Invalid:
    return Invalid(
        f"as_of is not a moment: {value!r}. Send a time (2026-11-15T00:00:00Z, or milliseconds since 1970), "
        "the number of a commit, '5 minutes ago', or the token of an acknowledgement"
    )
