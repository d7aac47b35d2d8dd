"""Which events of a request are duplicates: by number for ever, by identity within the deduplication window.

The check runs inside the transaction of an append. It uses committed rows and requests of the same
transaction, so a duplicate is only reported after the event that it repeats is durable, and nothing is kept
of a request whose transaction did not commit.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from catalog.store.database import Database
from catalog.store.statements import run_many
from ingest.journal.encoded_request import DIGEST_BYTES, EncodedRequest
from ingest.journal.schema import digests, ranges

NumberRange = tuple[int, int]  # first and last, both inside


class Ranges:
    """Disjoint intervals in rising order; neighbours are always joined."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, known: Iterable[NumberRange] = ()) -> None:
        """`known` is in rising order."""
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in known:
            self._firsts.append(first)
            self._lasts.append(last)

    def spans(self) -> list[NumberRange]:
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
                    index for index in range(start, end) if not self.take_span(numbers[index], numbers[index])
                ]
        return repeated


def runs(numbers: Sequence[int]) -> list[NumberRange]:
    """The places (start, behind the end) of the longest stretches in which each number follows the last."""
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
    """The firsts that are no longer there, and the intervals that are new or have grown."""
    old, new = dict(before), dict(after)
    gone = [first for first in old if first not in new]
    return gone, [(first, last) for first, last in new.items() if old.get(first) != last]


# -- identities of the last minutes

FORGET_AT_A_TIME = 4_000


class DeduplicationWindow:
    """Of one warehouse. `read_to` is the journal id up to which every append's marks are in here."""

    def __init__(self, digests_max: int) -> None:
        self.read_to = 0
        self.is_loaded = False
        self._digests_max = digests_max
        self._known: dict[bytes, int] = {}  # -> until when
        self._oldest: deque[tuple[int, list[bytes]]] = deque()

    def __len__(self) -> int:
        return len(self._known)

    def known(self, digests: set[bytes], now_ms: int) -> set[bytes]:
        """Those of them that are in here and not over."""
        return {digest for digest in self._known.keys() & digests if self._known[digest] > now_ms}

    def add(self, digests: Iterable[bytes], expires_ms: int) -> None:
        added = list(digests)
        if added:
            self._known.update(dict.fromkeys(added, expires_ms))
            self._oldest.append((expires_ms, added))

    def forget(self, now_ms: int) -> int:
        """Drop some of what is over; answers how many had to go before their time, because of too many."""
        early = left = 0
        while self._oldest and left < FORGET_AT_A_TIME:
            expires_ms, digests = self._oldest[0]
            if expires_ms > now_ms and len(self._known) <= self._digests_max:
                break
            early += len(digests) if expires_ms > now_ms else 0
            left += len(digests)
            self._oldest.popleft()
            for digest in digests:
                if self._known.get(digest) == expires_ms:  # another append may have renewed it
                    del self._known[digest]
        return early


# -- inside the transaction of an append

ROWS_AT_A_TIME = 100

_of_source = (ranges.c.warehouse == sa.bindparam("w"), ranges.c.source == sa.bindparam("s"))
# Intervals are disjoint, so of all that begin below only the last one can reach up to here.
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
_NEWER_DIGESTS = (
    sa.select(digests.c.id, digests.c.expires_ms, digests.c.marks)
    .where(
        digests.c.warehouse == sa.bindparam("w"),
        digests.c.id > sa.bindparam("after"),
        digests.c.expires_ms > sa.bindparam("now"),
    )
    .order_by(digests.c.id)
    .limit(ROWS_AT_A_TIME)
)
_INSERT_DIGESTS = sa.insert(digests)


@dataclass(frozen=True, slots=True)
class StoredDigests:
    """What one append brought."""

    journal_id: int
    expires_ms: int
    digests: list[bytes]


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
        """The slots of the request whose numbers were seen; the others now are."""
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
    """Under which name the numbers of a source are kept: each epoch counts anew."""
    return f"{source}~{epoch}" if epoch else source


def has_seen_any(connection: sa.Connection, warehouse: str, counter: str, low: int, high: int) -> bool:
    """Whether one of the numbers from `low` to `high` was appended before this group."""
    params = {"w": warehouse, "s": counter, "low": low, "high": high}
    return any(row[1] >= low for row in connection.execute(_NEAR, params).fetchall())


class GroupDigests:
    """The identities of one group commit, in one warehouse.

    The window changes only after COMMIT (`after_commit`): until then, what others appended and what this
    group adds may be rolled back.
    """

    def __init__(
        self, connection: sa.Connection, warehouse: str, window: DeduplicationWindow, now_ms: int
    ) -> None:
        self._connection = connection
        self._warehouse = warehouse
        self._window = window
        self._now_ms = now_ms
        self._new: set[bytes] = set()
        self._others: list[StoredDigests] = []  # appended by other processes since this one looked last
        after = window.read_to
        while True:
            params = {"w": warehouse, "after": after, "now": now_ms}
            rows = [_stored_digests(row) for row in connection.execute(_NEWER_DIGESTS, params).fetchall()]
            self._others += rows
            if len(rows) < ROWS_AT_A_TIME:
                break
            after = rows[-1].journal_id

    def take(self, request: EncodedRequest) -> list[int]:
        """The slots of the request whose identities were seen; the others now are."""
        if not request.digests:
            return []
        distinct = set(request.digests)
        known = self._window.known(distinct, self._now_ms).union(
            *(distinct.intersection(one.digests) for one in self._others)
        )
        seen = known | (self._new & distinct)
        self._new |= distinct - known
        if not seen and len(distinct) == len(request.digests):
            return []
        repeated = []
        for slot, digest in zip(request.digest_slots, request.digests, strict=True):
            if digest in seen:
                repeated.append(slot)
            seen.add(digest)
        return repeated

    def is_changed(self, request: EncodedRequest) -> bool:
        """Whether a request of the same name was here with another body; else its name is known from now."""
        if request.batch is None:
            return False
        name, body = request.batch
        if self._knows(name) and not self._knows(body):
            return True
        self._new |= {digest for digest in request.batch if not self._knows(digest)}
        return False

    def _knows(self, digest: bytes) -> bool:
        return (
            digest in self._new
            or bool(self._window.known({digest}, self._now_ms))
            or any(digest in one.digests for one in self._others)
        )

    def store(self, journal_id: int, expires_ms: int) -> None:
        if self._new:
            row = {
                "warehouse": self._warehouse,
                "id": journal_id,
                "expires_ms": expires_ms,
                "marks": b"".join(self._new),
            }
            self._connection.execute(_INSERT_DIGESTS, row)

    def after_commit(self, journal_id: int, expires_ms: int) -> None:
        """After COMMIT."""
        for one in self._others:
            self._window.add(one.digests, one.expires_ms)
        self._window.add(self._new, expires_ms)
        self._window.read_to = journal_id


def load_window(database: Database, warehouse: str, window: DeduplicationWindow, now_ms: int) -> None:
    """Before the first append: what was seen in the last minutes, without holding anybody up."""
    if window.is_loaded:
        return
    while not window.is_loaded:
        params = {"w": warehouse, "after": window.read_to, "now": now_ms}
        rows = [_stored_digests(row) for row in database.fetch_all(_NEWER_DIGESTS, params)]
        for one in rows:
            window.add(one.digests, one.expires_ms)
            window.read_to = one.journal_id
        window.is_loaded = len(rows) < ROWS_AT_A_TIME


def _stored_digests(row: tuple[int, int, bytes]) -> StoredDigests:
    return StoredDigests(row[0], row[1], split_digests(row[2]))


def split_digests(blob: bytes) -> list[bytes]:
    return [blob[at : at + DIGEST_BYTES] for at in range(0, len(blob), DIGEST_BYTES)]
