"""Where in a mirror's files the row of each key stands, as far as this worker knows. Pure.

An index belongs to one snapshot of its table. Whoever finds another snapshot there (somebody else wrote, or
the batch that made this index was never published) builds it anew, so what is in here is never believed for
longer than it is true. It is kept for tables of one key column, of whole numbers, dates or text.

What a scan found is sorted and stays; what batches change is noted beside it, and now and then sorted in. So
a batch costs as much as it has keys, however large the table is.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

ROWS_MAX = 12_000_000  # of one table; 20 bytes each, and text besides
BYTES_IN_ALL_MAX = 512 * 2**20
NOTED_BYTES = 200  # of a change that is not sorted in yet, about
NOTED_MAX = 50_000  # or a twentieth of the rows, if that is more

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
        self._noted: dict[Key, Place | None] = {}  # None: deleted
        self._sort_in(_comparable(keys), files, places)

    @classmethod
    def empty(cls, type_: pa.DataType) -> KeyIndex:
        return cls(pa.array([], type_), pa.array([], pa.int32()), pa.array([], pa.int64()), [])

    @property
    def size_bytes(self) -> int:
        arrays = (self._keys, *self._columns)
        return sum(int(array.nbytes) for array in arrays) + NOTED_BYTES * len(self._noted)

    def positions(self, keys: pa.ChunkedArray) -> pa.Table:
        """Where rows with these keys stand: `file_path` and `pos`, in the order of position deletes."""
        noted, found = self._noted, []
        for key in _comparable(whole(keys)).to_pylist():
            if key not in noted:
                found += self._sorted_in(key)
            elif (place := noted[key]) is not None:
                found.append(place)
        named = sorted((self._paths[file], place) for file, place in found)
        columns = [
            pa.array([path for path, _ in named], pa.string()),
            pa.array([place for _, place in named], pa.int64()),
        ]
        return pa.table(columns, names=["file_path", "pos"])

    def follow(self, keys: pa.ChunkedArray, path: str | None, kept: pa.ChunkedArray) -> None:
        """After a batch with these keys: the rows of those that were kept stand in the file at `path`, one
        after the other; the others are gone.
        """
        self._noted |= dict.fromkeys(_comparable(whole(keys)).to_pylist())
        if path is not None:
            self._paths.append(path)
            number = len(self._paths) - 1
            rows = enumerate(_comparable(whole(kept)).to_pylist())
            self._noted |= {key: (number, place) for place, key in rows}
        if len(self._noted) > max(NOTED_MAX, len(self._keys) // 20):
            self._sort_notes_in()

    def _sorted_in(self, key: Key) -> list[Place]:
        """By bisection in what the scan found."""
        keys, numbers, size = self._keys, self._numbers, len(self._keys)
        if isinstance(key, str):
            first = end = bisect_left(range(size), key, key=lambda row: keys[row].as_py())
            while end < size and keys[end].as_py() == key:
                end += 1
        else:
            first = end = bisect_left(numbers, key)
            while end < size and numbers[end] == key:
                end += 1
        return [(self._files[row], self._places[row]) for row in range(first, end)]

    def _sort_notes_in(self) -> None:
        stay = pc.invert(pc.is_in(self._keys, value_set=pa.array(self._noted, self._keys.type)))
        here = {key: place for key, place in self._noted.items() if place is not None}
        self._noted = {}
        self._sort_in(
            pa.concat_arrays([self._keys.filter(stay), pa.array(here, self._keys.type)]),
            pa.concat_arrays(
                [self._columns[0].filter(stay), pa.array([file for file, _ in here.values()], pa.int32())]
            ),
            pa.concat_arrays(
                [self._columns[1].filter(stay), pa.array([place for _, place in here.values()], pa.int64())]
            ),
        )

    def _sort_in(self, keys: pa.Array, files: pa.Array, places: pa.Array) -> None:
        order = pc.sort_indices(keys)
        self._keys = keys.take(order)
        self._columns = (files.cast(pa.int32()).take(order), places.cast(pa.int64()).take(order))
        # Python's bisection on plain memory: a microsecond for a key among millions.
        self._numbers = memoryview(b"") if pat.is_string(keys.type) else _numbers(self._keys, "q")
        self._files, self._places = _numbers(self._columns[0], "i"), _numbers(self._columns[1], "q")


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


class KeyIndexes:
    """The indexes of this worker; those not used for long go first. From any thread."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, ...], tuple[Any, KeyIndex]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, table: tuple[str, ...], state: Any) -> KeyIndex | None:
        """The index of a table that is in this state: its uuid and snapshot, and what its key is."""
        with self._lock:
            found = self._known.get(table)
            if found is None or found[0] != state:
                return None
            self._known.move_to_end(table)
            return found[1]

    def put(self, table: tuple[str, ...], state: Any, index: KeyIndex) -> None:
        with self._lock:
            self._known[table] = (state, index)
            self._known.move_to_end(table)
            while len(self._known) > 1 and self._bytes() > BYTES_IN_ALL_MAX:
                self._known.popitem(last=False)

    def forget(self, table: tuple[str, ...]) -> None:
        with self._lock:
            self._known.pop(table, None)

    def _bytes(self) -> int:
        return sum(index.size_bytes for _, index in self._known.values())


def state_of(metadata: Mapping[str, Any]) -> tuple[str, int | None]:
    """What an index belongs to."""
    snapshot = metadata.get("current-snapshot-id")
    return (metadata["table-uuid"], None if snapshot in (None, -1) else snapshot)
