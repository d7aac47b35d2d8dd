"""The changes that are sent: orders of seven columns in Calve's own format, and what their mirror must hold.

Pure, and the same for the same seed, so that two pipelines can be given the same changes.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

Event = dict[str, Any]
UPDATES, INSERTS = 0.7, 0.2  # of the changes; the others are deletes
EPOCH_MS = 1_763_280_000_000


KeyOf = Callable[[int], int | str]  # the value of the key column for the number of a row


def integer_key(number: int) -> int:
    return number


def text_key(number: int) -> str:
    """In no order that the numbers have: neighbours are far from each other."""
    return f"{number * 2_654_435_761 % 2**32:08x}-{number:010}"


def row(key: int, marker: int, key_of: KeyOf = integer_key) -> dict[str, Any]:
    """About 130 bytes as JSON. `marker` says which change this row is the result of."""
    return {
        "id": key_of(key),
        "customer": f"customer {key * 7919 % 10_007}",
        "amount": marker % 997 * 1.25,
        "status": ("new", "paid", "sent")[marker % 3],
        "note": f"order {key} after {marker}",
        "active": marker % 2 == 0,
        "marker": marker,
    }


def event(
    sequence: int, operation: str, table: str, key: int, marker: int, key_of: KeyOf = integer_key
) -> Event:
    found: Event = {
        "sequence": sequence,
        "timestamp": EPOCH_MS + sequence,
        "operation": operation,
        "table": table,
        "rowId": str(key_of(key)),
    }
    if operation == "DELETE":
        found["before"] = {"id": key_of(key)}
    else:
        found["after"] = row(key, marker, key_of)
    return found


def inserts(table: str, first: int, count: int, marker: int = 0, key_of: KeyOf = integer_key) -> list[Event]:
    """New rows; they are counted by their keys."""
    return [event(key, "INSERT", table, key, marker, key_of) for key in range(first, first + count)]


def body(events: Iterable[Event]) -> bytes:
    return orjson.dumps({"events": list(events)})


@dataclass(frozen=True, slots=True)
class Digest:
    """What a mirror is compared by."""

    rows: int
    ids: int
    markers: int


class Orders:
    """The rows of one table as a producer knows them; each change is drawn at random from those that fit."""

    def __init__(self, table: str, keys: int, seed: int, key_of: KeyOf = integer_key) -> None:
        self.table = table
        self._key_of = key_of
        self._random = random.Random(seed)
        self._live = array("q", range(keys))  # small, because a mirror may have ten million rows
        self._marker_of: dict[int, int] = {}  # of those that have changed
        self._next_key = keys

    def changes(self, first: int, count: int) -> Iterator[Event]:
        """Numbered from `first` on; the number is the marker too."""
        for number in range(first, first + count):
            yield self.change(number, number)

    def change(self, sequence: int, marker: int) -> Event:
        drawn = self._random.random()
        if drawn >= UPDATES + INSERTS and len(self._live) > 1:
            return event(sequence, "DELETE", self.table, self._removed(), marker, self._key_of)
        if drawn >= UPDATES:
            return event(sequence, "INSERT", self.table, self._added(marker), marker, self._key_of)
        return self.update(sequence, marker)

    def update(self, sequence: int, marker: int) -> Event:
        key = self._live[self._random.randrange(len(self._live))]
        self._marker_of[key] = marker
        return event(sequence, "UPDATE", self.table, key, marker, self._key_of)

    def digest(self) -> Digest:
        return Digest(len(self._live), sum(self._live), sum(self._marker_of.values()))

    def _removed(self) -> int:
        place = self._random.randrange(len(self._live))
        self._live[place], self._live[-1] = self._live[-1], self._live[place]
        key = self._live.pop()
        self._marker_of.pop(key, None)
        return key

    def _added(self, marker: int) -> int:
        key, self._next_key = self._next_key, self._next_key + 1
        self._live.append(key)
        self._marker_of[key] = marker
        return key


def in_batches(events: Sequence[Event], size: int) -> Iterator[Sequence[Event]]:
    for start in range(0, len(events), size):
        yield events[start : start + size]


def line(change: Event) -> bytes:
    """One change on a line of its own."""
    return orjson.dumps(change, option=orjson.OPT_APPEND_NEWLINE)
