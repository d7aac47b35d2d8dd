"""Where in a mirror's files the row of each key stands, as far as this worker knows. Pure.

An index belongs to one snapshot of its table. Whoever finds another snapshot there (somebody else wrote, or
the batch that made this index was never published) builds it anew, so what is in here is never believed for
longer than it is true. It is kept for tables of one key column, of whole numbers, dates or text.

A batch of few keys looks for each of them in what is sorted, and notes what it changed beside it; so it costs
as much as it has keys, however large the table is. A batch of many goes once through all rows, in no order,
which for a table that is not much larger takes a hundredth of the time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

ROWS_MAX = 12_000_000  # of one table; 20 bytes each, and text besides
NOTED_BYTES = 200  # of a change that is not sorted in yet, about
NOTED_MAX = 50_000  # or a twentieth of the rows, if that is more
# All rows at once take about 20 ns each, a key by itself 4 µs.
ROWS_PER_KEY = 100

Key = int | str
Place = tuple[int, int]  # the number of the file, and the row in it


def is_indexed(type_: pa.DataType) -> bool:
    return bool(pat.is_integer(type_) or pat.is_string(type_) or pat.is_date32(type_))


class KeyIndex:
    """Used by one thread at a time. Batches leave one row for each key; a scan may find more, if somebody
    else wrote them.
    """

    def __init__(self, keys: pa.Array, files: pa.Array, places: pa.Array, paths: Sequence[str]) -> None:
        """The columns of a scan: key, which of `paths`, and the row in it."""
        self._paths = list(paths)
        self._keys = _comparable(keys)
        self._files, self._places = files.cast(pa.int32()), places.cast(pa.int64())
        self._is_sorted = False
        self._noted: dict[Key, Place | None] = {}  # None: deleted

    @classmethod
    def empty(cls, type_: pa.DataType) -> KeyIndex:
        return cls(pa.array([], type_), pa.array([], pa.int32()), pa.array([], pa.int64()), [])

    @property
    def size_bytes(self) -> int:
        arrays = (self._keys, self._files, self._places)
        return sum(int(array.nbytes) for array in arrays) + NOTED_BYTES * len(self._noted)

    def positions(self, keys: pa.ChunkedArray) -> pa.Table:
        """Where rows with these keys stand: `file_path` and `pos`, in the order of position deletes."""
        wanted = _comparable(whole(keys))
        if self._is_much(wanted):
            self._take_notes()
            found = pc.is_in(self._keys, value_set=wanted)
            return self._named(self._files.filter(found), self._places.filter(found))
        places = self._one_by_one(wanted.to_pylist())
        files = pa.array([file for file, _ in places], pa.int32())
        return self._named(files, pa.array([place for _, place in places], pa.int64()))

    def follow(self, keys: pa.ChunkedArray, path: str | None, kept: pa.ChunkedArray) -> None:
        """After a batch with these keys: the rows of those that were kept stand in the file at `path`, one
        after the other; the others are gone.
        """
        gone, here = _comparable(whole(keys)), _comparable(whole(kept))
        if path is not None:
            self._paths.append(path)
        number, places = len(self._paths) - 1, range(len(here) if path is not None else 0)
        if self._is_much(gone):
            self._take_notes()
            self._replace(gone, here[: len(places)], [number] * len(places), places)
            return
        self._noted |= dict.fromkeys(gone.to_pylist())
        self._noted |= {key: (number, place) for place, key in zip(places, here.to_pylist(), strict=False)}
        if len(self._noted) > max(NOTED_MAX, len(self._keys) // 20):
            self._take_notes()

    def _is_much(self, keys: pa.Array) -> bool:
        return len(self._keys) + len(self._noted) <= ROWS_PER_KEY * len(keys)

    def _named(self, files: pa.Array, places: pa.Array) -> pa.Table:
        """Files by their paths, in the order of those."""
        order = sorted(range(len(self._paths)), key=self._paths.__getitem__)
        ranks = pa.array(sorted(range(len(order)), key=order.__getitem__), pa.int32())
        table = pa.table([ranks.take(files), places], names=["rank", "pos"])
        table = table.sort_by([("rank", "ascending"), ("pos", "ascending")])
        paths = pa.array([self._paths[number] for number in order], pa.string())
        return pa.table([paths.take(table.column("rank")), table.column("pos")], names=["file_path", "pos"])

    # -- many keys: through all rows at once

    def _replace(self, gone: pa.Array, keys: pa.Array, files: Sequence[int], places: Sequence[int]) -> None:
        """The rows of the keys that are gone leave, others come; in no order."""
        stay = pc.invert(pc.is_in(self._keys, value_set=gone))
        self._keys = pa.concat_arrays([self._keys.filter(stay), keys])
        self._files = pa.concat_arrays([self._files.filter(stay), pa.array(files, pa.int32())])
        self._places = pa.concat_arrays([self._places.filter(stay), pa.array(places, pa.int64())])
        self._is_sorted = False

    def _take_notes(self) -> None:
        if not self._noted:
            return
        noted, self._noted = self._noted, {}
        here = {key: place for key, place in noted.items() if place is not None}
        self._replace(
            pa.array(noted, self._keys.type),
            pa.array(here, self._keys.type),
            [file for file, _ in here.values()],
            [place for _, place in here.values()],
        )

    # -- few keys: each by itself

    def _one_by_one(self, keys: Sequence[Key]) -> list[Place]:
        noted, found = self._noted, []
        self._sort()
        for key in keys:
            if key not in noted:
                found += self._bisected(key)
            elif (place := noted[key]) is not None:
                found.append(place)
        return found

    def _sort(self) -> None:
        if self._is_sorted:
            return
        order = pc.sort_indices(self._keys)
        self._keys = self._keys.take(order)
        self._files, self._places = self._files.take(order), self._places.take(order)
        self._is_sorted = True
        # Python's bisection on plain memory: a microsecond for a key among millions.
        self._numbers = memoryview(b"") if pat.is_string(self._keys.type) else _numbers(self._keys, "q")
        self._file_of, self._place_of = _numbers(self._files, "i"), _numbers(self._places, "q")

    def _bisected(self, key: Key) -> list[Place]:
        keys, numbers, size = self._keys, self._numbers, len(self._keys)
        if isinstance(key, str):
            first = end = bisect_left(range(size), key, key=lambda row: keys[row].as_py())
            while end < size and keys[end].as_py() == key:
                end += 1
        else:
            first = end = bisect_left(numbers, key)
            while end < size and numbers[end] == key:
                end += 1
        return [(self._file_of[row], self._place_of[row]) for row in range(first, end)]


def _numbers(array: pa.Array, format_: Literal["i", "q"]) -> memoryview[int]:
    """The memory of an array of whole numbers, none of them null."""
    data = array.buffers()[1]
    if data is None or not len(array):
        return memoryview(b"").cast(format_)
    return memoryview(data).cast("B").cast(format_)[array.offset : array.offset + len(array)]


def _comparable(keys: pa.Array) -> pa.Array:
    """Numbers of one width; days as the numbers they are."""
    if pat.is_string(keys.type):
        return keys
    return keys.cast(pa.int32()).cast(pa.int64()) if pat.is_date32(keys.type) else keys.cast(pa.int64())


def whole(column: pa.ChunkedArray) -> pa.Array:
    """A column in one piece."""
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
