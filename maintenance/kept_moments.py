"""Which moments of a warehouse are kept: recent ones all, older ones thinned out. Pure functions.

A policy is a list of tiers, written as text:

    all:10m, 1m:6h, 1h:7d, 1d:365d

Every number of the last 10 minutes is kept, then the last number of each minute for 6 hours, of each hour for
7 days, of each day for a year. Minutes, hours and days are those of UTC. The newest number is always kept.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from catalog.errors import Invalid

DEFAULT = "all:10m, 1m:6h, 1h:7d, 1d:365d"
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(\d{1,9})(ms|s|m|h|d)").fullmatch
_TIERS_MAX = 10

Moment = tuple[int, int]  # number, time in milliseconds


@dataclass(frozen=True, slots=True)
class Tier:
    """Moments younger than `age_ms` are kept, one for each `period_ms`; 0 keeps all of them."""

    period_ms: int
    age_ms: int


@dataclass(frozen=True, slots=True)
class KeptMomentsPolicy:
    tiers: tuple[Tier, ...]

    @property
    def all_ms(self) -> int:
        """How long every number is kept."""
        return self.tiers[0].age_ms

    @classmethod
    def parse(cls, text: str) -> KeptMomentsPolicy:
        """Invalid says what is wrong."""
        parts = [part.strip() for part in text.split(",") if part.strip()]
        tiers = tuple(_tier(part) for part in parts)
        if not tiers or len(tiers) > _TIERS_MAX or tiers[0].period_ms:
            raise Invalid(
                f"kept moments begin with all:DURATION and have at most {_TIERS_MAX} tiers: {DEFAULT}"
            )
        for before, after in itertools.pairwise(tiers):
            if after.period_ms <= before.period_ms or after.age_ms <= before.age_ms:
                raise Invalid(
                    f"each tier of kept moments has a longer period and age than the one before: {DEFAULT}"
                )
        return cls(tiers)

    def __str__(self) -> str:
        return ", ".join(
            f"{duration_text(tier.period_ms) if tier.period_ms else 'all'}:{duration_text(tier.age_ms)}"
            for tier in self.tiers
        )


def _tier(text: str) -> Tier:
    period, _, age = text.partition(":")
    period_ms = 0 if period.strip() == "all" else duration_ms(period.strip())
    return Tier(period_ms, duration_ms(age.strip()))


def duration_ms(text: str) -> int:
    """Milliseconds of a duration such as 10m. Invalid if it is not one."""
    found = _DURATION(text)
    if found is None or int(found[1]) == 0:
        raise Invalid(f"not a duration: {text!r}. Write a number with ms, s, m, h or d, such as 10m")
    return int(found[1]) * _UNIT_MS[found[2]]


def duration_text(ms: int) -> str:
    """The shortest text of a duration."""
    for unit in ("d", "h", "m", "s"):
        if ms % _UNIT_MS[unit] == 0:
            return f"{ms // _UNIT_MS[unit]}{unit}"
    return f"{ms}ms"


def kept(moments: Sequence[Moment], policy: KeptMomentsPolicy, now_ms: int) -> set[int]:
    """The numbers that the policy keeps. `moments` are in the order of their numbers, and so of their times.

    A number that is forgotten once is never needed again: the last number of a long period is also the last
    number of the shorter period in which it is.
    """
    found: set[int] = set()
    for index, (number, time_ms) in enumerate(moments):
        if index == len(moments) - 1:
            found.add(number)
            continue
        period_ms = _period_ms(policy, now_ms - time_ms)
        if period_ms is None:
            continue
        if period_ms == 0 or time_ms // period_ms != moments[index + 1][1] // period_ms:
            found.add(number)
    return found


def _period_ms(policy: KeptMomentsPolicy, age_ms: int) -> int | None:
    return next((tier.period_ms for tier in policy.tiers if age_ms < tier.age_ms), None)
