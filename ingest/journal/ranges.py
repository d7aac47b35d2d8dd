"""A set of whole numbers, kept as the intervals that it consists of. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

Span = tuple[int, int]  # first and last, both inside


class Ranges:
    """Disjoint intervals in rising order; neighbours are always joined."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, known: Iterable[Span] = ()) -> None:
        """`known` is in rising order."""
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in known:
            self._firsts.append(first)
            self._lasts.append(last)

    def spans(self) -> list[Span]:
        return list(zip(self._firsts, self._lasts, strict=True))

    def take_span(self, first: int, last: int) -> bool:
        """Add the interval; False, and nothing is added, if any of it was known."""
        firsts, lasts = self._firsts, self._lasts
        at = bisect_right(firsts, last)
        if at and lasts[at - 1] >= first:
            return False
        joins_left = at > 0 and lasts[at - 1] == first - 1
        joins_right = at < len(firsts) and firsts[at] == last + 1
        if joins_left and joins_right:
            lasts[at - 1] = lasts.pop(at)
            del firsts[at]
        elif joins_left:
            lasts[at - 1] = last
        elif joins_right:
            firsts[at] = first
        else:
            firsts.insert(at, first)
            lasts.insert(at, last)
        return True

    def take(self, numbers: Sequence[int]) -> list[int]:
        """Add the numbers; answers at which places of the sequence there stands one that was known."""
        repeated = []
        for start, end in runs(numbers):
            if not self.take_span(numbers[start], numbers[end - 1]):
                repeated += [
                    place for place in range(start, end) if not self.take_span(numbers[place], numbers[place])
                ]
        return repeated


def runs(numbers: Sequence[int]) -> list[Span]:
    """The places (start, behind the end) of the longest stretches in which each number follows the last."""
    if not numbers:
        return []
    if numbers[-1] - numbers[0] + 1 == len(numbers) and list(range(numbers[0], numbers[-1] + 1)) == numbers:
        return [(0, len(numbers))]
    found, start = [], 0
    for place in range(1, len(numbers)):
        if numbers[place] != numbers[place - 1] + 1:
            found.append((start, place))
            start = place
    return [*found, (start, len(numbers))]


def difference(before: Iterable[Span], after: Iterable[Span]) -> tuple[list[int], list[Span]]:
    """The firsts that are no longer there, and the intervals that are new or have grown."""
    old, new = dict(before), dict(after)
    gone = [first for first in old if first not in new]
    return gone, [(first, last) for first, last in new.items() if old.get(first) != last]
