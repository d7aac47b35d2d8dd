"""Random batches of changes: few keys, so that everything happens to the same rows."""

from __future__ import annotations

import random

from tests.clients.pipeline_events import Event, Row, delete, insert, moved, truncate, update

COLUMNS = {"id": "long", "name": "string", "big": "string", "n": "double"}
_PLAIN = ("name", "big", "n")


class RandomChanges:
    """`positions` gives every event one, counted up; a replay then finds old ones among the new."""

    def __init__(self, seed: int, keys: int, *, positions: bool = False) -> None:
        self._random = random.Random(seed)
        self._keys = keys
        self._positions = positions
        self._number = 0
        self._held: list[Event] = []

    def batch(self, size: int) -> list[Event]:
        found: list[Event] = []
        while len(found) < size:
            found += self._step()
        return found

    def late_batch(self, size: int, sent: list[Event]) -> list[Event]:
        """New events, some that were held back, and some that were sent before, in order of position."""
        batch = self.batch(size)
        kept = [event for event in batch if not self._held_back(event)]
        known = {id(event) for event in kept}
        again = [event for event in self._random.sample(sent, min(len(sent), 4)) if id(event) not in known]
        late, self._held = self._held[:2], self._held[2:]
        return sorted([*kept, *again, *late], key=lambda event: event.position)

    def _held_back(self, event: Event) -> bool:
        if event.absent or event.root is not None or self._random.random() > 0.2:
            return False
        self._held.append(event)
        return True

    def _step(self) -> list[Event]:
        key, kind = self._random.randrange(self._keys), self._random.random()
        if kind < 0.3:
            found = [insert(**self._row(key))]
        elif kind < 0.65:
            absent = [column for column in _PLAIN if self._random.random() < 0.4]
            row = {name: value for name, value in self._row(key).items() if name not in absent}
            found = [update(*absent, **row)]
        elif kind < 0.8:
            found = [delete(id=key)]
        elif kind < 0.97:
            found = self._key_change(key)
        else:
            found = [truncate()]
        return [self._placed(event) for event in found]

    def _key_change(self, key: int) -> list[Event]:
        to = self._random.randrange(self._keys)
        absent = [column for column in _PLAIN if self._random.random() < 0.5]
        row = {name: value for name, value in self._row(to).items() if name not in absent}
        return [delete(id=key), moved({"id": key}, *absent, **row)]

    def _placed(self, event: Event) -> Event:
        if self._positions:
            self._number += 1
            event.position = f"{self._number:016x}"
        return event

    def _row(self, key: int) -> Row:
        value = self._random.randrange(10**6)
        big = None if self._random.random() < 0.2 else f"big {value}"
        return {"id": key, "name": f"name {value}", "big": big, "n": value / 4}
