"""The identities of the last minutes, in memory. Pure.

What is over is taken out a little at a time, so that no append waits for the clearing of millions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

FORGET_AT_A_TIME = 4_000


class Window:
    """Of one warehouse. `read_to` is the journal id up to which every append's marks are in here."""

    def __init__(self, marks_max: int) -> None:
        self.read_to = 0
        self.is_loaded = False
        self._marks_max = marks_max
        self._known: dict[bytes, int] = {}  # -> until when
        self._oldest: deque[tuple[int, list[bytes]]] = deque()

    def __len__(self) -> int:
        return len(self._known)

    def known(self, marks: set[bytes], now_ms: int) -> set[bytes]:
        """Those of them that are in here and not over."""
        return {mark for mark in self._known.keys() & marks if self._known[mark] > now_ms}

    def add(self, marks: Iterable[bytes], expires_ms: int) -> None:
        added = list(marks)
        if added:
            self._known.update(dict.fromkeys(added, expires_ms))
            self._oldest.append((expires_ms, added))

    def forget(self, now_ms: int) -> int:
        """Drop some of what is over; answers how many had to go before their time, because of too many."""
        early = left = 0
        while self._oldest and left < FORGET_AT_A_TIME:
            expires_ms, marks = self._oldest[0]
            if expires_ms > now_ms and len(self._known) <= self._marks_max:
                break
            early += len(marks) if expires_ms > now_ms else 0
            left += len(marks)
            self._oldest.popleft()
            for mark in marks:
                if self._known.get(mark) == expires_ms:  # another append may have renewed it
                    del self._known[mark]
        return early
