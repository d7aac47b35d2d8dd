"""Find duplicates by number: the journal keeps the numbers that it has seen of each source, without a time
limit.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

import sqlalchemy as sa

from catalog.store.statements import run_many
from ingest.journal.encoded_request import EncodedRequest
from ingest.journal.schema import ranges

NumberRange = tuple[int, int]  # first and last, both included


class Ranges:
    """Disjoint intervals in ascending order; adjacent ones are always merged."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, known: Iterable[NumberRange] = ()) -> None:
        """`known` is in ascending order."""
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in known:
            self._firsts.append(first)
            self._lasts.append(last)

    def spans(self) -> list[NumberRange]:
        return list(zip(self._firsts, self._lasts, strict=True))

    def add_span(self, first: int, last: int) -> bool:
        """Add the interval. Returns False, and adds nothing, if any of it was known."""
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
        """Add the numbers. Returns the indexes of those that were known."""
        repeated = []
        for start, end in runs(numbers):
            if not self.add_span(numbers[start], numbers[end - 1]):
                repeated += [
                    index for index in range(start, end) if not self.add_span(numbers[index], numbers[index])
                ]
        return repeated


def runs(numbers: Sequence[int]) -> list[NumberRange]:
    """Return the index ranges (start, end) of the longest runs of consecutive numbers."""
    if not numbers:
        return []
    if numbers[-1] - numbers[0] + 1 == len(numbers) and list(range(numbers[0], numbers[-1] + 1)) == numbers:
        return [(0, len(numbers))]
    found, start = [], 0
    for index in range(1, len(numbers)):
        if numbers[index] != numbers[index - 1] + 1:
            found.append((start, index))
            start = index
    return [*found, (start, len(numbers))]


def difference(
    before: Iterable[NumberRange], after: Iterable[NumberRange]
) -> tuple[list[int], list[NumberRange]]:
    """Return the starts of intervals that no longer exist, and the intervals that are new or have grown."""
    old, new = dict(before), dict(after)
    gone = [first for first in old if first not in new]
    return gone, [(first, last) for first, last in new.items() if old.get(first) != last]


_of_source = (ranges.c.warehouse == sa.bindparam("w"), ranges.c.source == sa.bindparam("s"))
# Intervals are disjoint, so of all that begin below only the last one can overlap.
_below = (
    sa.select(sa.func.max(ranges.c.first))
    .where(*_of_source, ranges.c.first < sa.bindparam("low"))
    .scalar_subquery()
)
_NEAR = (
    sa.select(ranges.c.first, ranges.c.last)
    .where(
        *_of_source,
        ranges.c.first <= sa.bindparam("high"),
        ranges.c.first >= sa.func.coalesce(_below, sa.bindparam("low")),
    )
    .order_by(ranges.c.first)
)
_SET_RANGE = sa.text(
    "INSERT INTO journal_ranges (warehouse, source, first, last) VALUES (:w, :s, :first, :last)"
    " ON CONFLICT (warehouse, source, first) DO UPDATE SET last = excluded.last"
)
_DELETE_RANGE = sa.delete(ranges).where(*_of_source, ranges.c.first == sa.bindparam("first"))


class GroupNumbers:
    """The numbered sources of one group commit, in one warehouse."""

    def __init__(self, connection: sa.Connection, warehouse: str, requests: Iterable[EncodedRequest]) -> None:
        self._connection = connection
        self._warehouse = warehouse
        self._before: dict[str, list[NumberRange]] = {}
        self._now: dict[str, Ranges] = {}
        spans: dict[str, NumberRange] = {}
        for request in requests:
            for one in request.numbered:
                low, high = min(one.numbers), max(one.numbers)
                counter = _counter(request, one.source)
                known = spans.get(counter, (low, high))
                spans[counter] = (min(low, known[0]), max(high, known[1]))
        for source, (low, high) in sorted(spans.items()):
            params = {"w": warehouse, "s": source, "low": low - 1, "high": high + 1}
            found = [(row[0], row[1]) for row in connection.execute(_NEAR, params).fetchall()]
            self._before[source] = found
            self._now[source] = Ranges(found)

    def take(self, request: EncodedRequest) -> list[int]:
        """Return the slots of the request whose numbers were known, and add the others."""
        return [
            one.slots[index]
            for one in request.numbered
            for index in self._now[_counter(request, one.source)].take(one.numbers)
        ]

    def store(self) -> None:
        gone, grown = [], []
        for source, before in self._before.items():
            firsts, spans = difference(before, self._now[source].spans())
            gone += [{"w": self._warehouse, "s": source, "first": first} for first in firsts]
            grown += [
                {"w": self._warehouse, "s": source, "first": first, "last": last} for first, last in spans
            ]
        run_many(_DELETE_RANGE, self._connection, gone)
        run_many(_SET_RANGE, self._connection, grown)


def _counter(request: EncodedRequest, source: str) -> str:
    return counter_name(source, request.epochs.get((source, ""), 0))


def counter_name(source: str, epoch: int) -> str:
    """Return the name under which the numbers of a source are stored: each epoch has its own."""
    return f"{source}~{epoch}" if epoch else source


def has_seen_any(connection: sa.Connection, warehouse: str, counter: str, low: int, high: int) -> bool:
    """Return whether one of the numbers from `low` to `high` was appended before this group."""
    params = {"w": warehouse, "s": counter, "low": low, "high": high}
    return any(row[1] >= low for row in connection.execute(_NEAR, params).fetchall())
