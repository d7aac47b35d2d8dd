"""The identities of the last minutes, in memory. Pure.

They are kept in generations that are forgotten as a whole, so nothing is ever searched for what is too old.
An identity is known for at least the window, and an eighth of it longer at most.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

GENERATIONS = 8


@dataclass(slots=True)
class _Generation:
    number: int
    expires_ms: int
    marks: set[bytes] = field(default_factory=set)


class Window:
    """Of one warehouse. `read_to` is the journal id up to which every append's marks are in here."""

    def __init__(self, window_ms: int, marks_max: int) -> None:
        self.read_to = 0
        self.is_loaded = False
        self._length_ms = max(1, window_ms // GENERATIONS)
        self._marks_max = marks_max
        self._generations: list[_Generation] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def known(self, marks: Collection[bytes]) -> set[bytes]:
        """Those of them that are in here."""
        found: set[bytes] = set()
        for generation in self._generations:
            if not generation.marks.isdisjoint(marks):
                found |= generation.marks.intersection(marks)
        return found

    def add(self, marks: Iterable[bytes], expires_ms: int) -> None:
        number = expires_ms // self._length_ms
        for generation in reversed(self._generations):
            if generation.number == number:
                break
        else:
            generation = _Generation(number, expires_ms)
            self._generations.append(generation)
            self._generations.sort(key=lambda one: one.number)
        before = len(generation.marks)
        generation.marks.update(marks)
        generation.expires_ms = max(generation.expires_ms, expires_ms)
        self._size += len(generation.marks) - before

    def forget(self, now_ms: int) -> int:
        """Drop what is over; answers how many had to go before their time because there are too many."""
        early = 0
        while self._generations and self._generations[0].expires_ms <= now_ms:
            self._size -= len(self._generations.pop(0).marks)
        while self._size > self._marks_max and len(self._generations) > 1:
            gone = len(self._generations.pop(0).marks)
            self._size -= gone
            early += gone
        return early
