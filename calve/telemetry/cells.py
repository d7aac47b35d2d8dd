"""Numbers in memory that several server processes share.

Each process owns one slot and is the only one that writes to it; whoever renders /metrics reads all slots
and adds them up. So a scrape is exact whichever worker answers it, nothing is left on disk after a kill, and
adding to a number costs no more than in an array. A process that takes over the slot of a dead one goes on
counting where that one ended, so counters never fall.

A slot has a directory (one line of JSON for each series: its name, its labels, its first cell) and cells.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass

import orjson

HEADER_BYTES = 16  # two numbers: length of the directory, process id
DIRECTORY_BYTES = 128 * 1024
CELLS_MAX = 16 * 1024
SLOT_BYTES = HEADER_BYTES + DIRECTORY_BYTES + CELLS_MAX * 8

Key = tuple[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Series:
    """One series in one slot: who it is and its numbers."""

    name: str
    labels: tuple[str, ...]
    values: list[float]


class Slot:
    """The numbers of one process."""

    def __init__(self, memory: memoryview) -> None:
        self._header = memory[:HEADER_BYTES].cast("q")
        self._directory = memory[HEADER_BYTES : HEADER_BYTES + DIRECTORY_BYTES]
        self.cells: memoryview[float] = memory[HEADER_BYTES + DIRECTORY_BYTES :].cast("d")
        entries = list(self._entries())
        self._known: dict[Key, int] = {(name, labels): first for name, labels, first, _ in entries}
        self._free = max((first + count for _, _, first, count in entries), default=0)

    @property
    def pid(self) -> int:
        """The process that writes here; 0 if there is none."""
        return self._header[1]

    def take(self) -> None:
        """Become the process that writes here."""
        self._header[1] = os.getpid()

    def allocate(self, name: str, labels: tuple[str, ...], count: int) -> int | None:
        """The first cell of the series, which is made if need be; None if the slot is full."""
        first = self._known.get((name, labels))
        if first is not None:
            return first
        line = orjson.dumps([name, labels, self._free, count]) + b"\n"
        used = self._header[0]
        if used + len(line) > DIRECTORY_BYTES or self._free + count > CELLS_MAX:
            return None
        self._directory[used : used + len(line)] = line
        self._header[0] = used + len(line)  # last, so that a reader never sees half a line
        first, self._free = self._free, self._free + count
        self._known[name, labels] = first
        return first

    def read(self) -> Iterator[Series]:
        """All series of the slot as they are now, whoever writes them."""
        for name, labels, first, count in self._entries():
            yield Series(name, labels, list(self.cells[first : first + count]))

    def _entries(self) -> Iterator[tuple[str, tuple[str, ...], int, int]]:
        for line in bytes(self._directory[: self._header[0]]).splitlines():
            name, labels, first, count = orjson.loads(line)
            yield name, tuple(labels), first, count


class Memory:
    """Slots for so many processes, shared with every process that is forked later."""

    def __init__(self, slots: int) -> None:
        shared = memoryview(mmap.mmap(-1, slots * SLOT_BYTES))
        self._parts = [shared[at * SLOT_BYTES : (at + 1) * SLOT_BYTES] for at in range(slots)]

    def slot(self, number: int) -> Slot:
        """A slot to write to."""
        return Slot(self._parts[number])

    def slots(self) -> list[Slot]:
        """All slots, to read."""
        return [Slot(part) for part in self._parts]
