"""Moments: the text after `@` in a warehouse reference, and its meaning.

    main@1234                    the state after commit number 1234; 0 is before the first commit
    main@2026-11-15T00:00:00Z    the state at that time (RFC 3339, any offset, to the millisecond)
    main@now                     the newest state, resolved to a number once

`str()` of a moment is its canonical text, so equal moments have equal prefixes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from catalog.errors import Invalid

_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}").fullmatch
_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:[Zz]|([+-])(\d\d):(\d\d))", re.ASCII
).fullmatch
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class AtNumber:
    """After the commit with this number."""

    number: int

    def __str__(self) -> str:
        return str(self.number)


@dataclass(frozen=True, slots=True)
class AtTime:
    """At this time, in milliseconds since 1970-01-01T00:00:00Z. A commit at exactly that time is included."""

    ms: int

    def __str__(self) -> str:
        seconds, ms = divmod(self.ms, 1000)
        text = (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat()
        return f"{text}.{ms:03d}Z" if ms else f"{text}Z"


@dataclass(frozen=True, slots=True)
class Now:
    """The newest state when the reference is resolved."""

    def __str__(self) -> str:
        return "now"


Moment = AtNumber | AtTime | Now


def moment_from_text(text: str) -> Moment:
    """Parse the text after the `@`. Raises Invalid with the reason."""
    if text == "now":
        return Now()
    if _NUMBER(text) is not None:
        return AtNumber(int(text))
    if _TIME(text) is not None:
        return AtTime(_time_ms(text))
    raise Invalid(
        "Invalid moment: after '@' stands a commit number (main@1234), an RFC 3339 time "
        "(main@2026-11-15T00:00:00Z; write '+' as %2B in a URL) or 'now'"
    )


def _time_ms(text: str) -> int:
    parts = _TIME(text)
    assert parts is not None
    year, month, day, hour, minute, second, fraction, sign, offset_hours, offset_minutes = parts.groups()
    try:
        local = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second), tzinfo=UTC)
        offset = timedelta(hours=int(offset_hours or 0), minutes=int(offset_minutes or 0))
        if int(offset_hours or 0) > 23 or int(offset_minutes or 0) > 59:
            raise ValueError("offset out of range")
        utc = local + offset if sign == "-" else local - offset
    except (ValueError, OverflowError) as error:
        raise Invalid(f"Invalid moment: no such time: {error}") from None
    # Digits below the millisecond are cut off: the moment is never later than the requested time.
    return (utc - _EPOCH) // _MILLISECOND + int((fraction or "").ljust(3, "0")[:3])
