"""Where in a mirror's files the row of each key stands, as far as this worker knows. Pure, over Arrow.

An index belongs to one snapshot of its table. Whoever finds another snapshot there (somebody else wrote, or
the batch that made this index was never published) builds it anew, so what is in here is never believed for
longer than it is true. It is kept for tables of one key column and not too many rows.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

ROWS_MAX = 2_000_000  # of one table
ROWS_IN_ALL_MAX = 6_000_000


@dataclass(frozen=True, slots=True)
class KeyIndex:
    """`file` counts in `paths`. One row for each key."""

    keys: pa.ChunkedArray
    files: pa.ChunkedArray
    places: pa.ChunkedArray
    paths: tuple[str, ...]

    @classmethod
    def of(cls, keys: pa.ChunkedArray, paths: pa.ChunkedArray, places: pa.ChunkedArray) -> KeyIndex:
        """From the columns key, `_file` and `_pos` of a scan."""
        coded = paths.combine_chunks().dictionary_encode()
        if isinstance(coded, pa.ChunkedArray):
            coded = coded.combine_chunks()
        files = pa.chunked_array([coded.indices], pa.int32())
        return cls(keys, files, places.cast(pa.int64()), tuple(coded.dictionary.to_pylist()))

    def __len__(self) -> int:
        return len(self.keys)

    def positions(self, keys: pa.ChunkedArray) -> tuple[pa.Table, KeyIndex]:
        """Where rows with these keys stand (`file_path`, `pos`, in order), and the index without them."""
        found = pc.is_in(self.keys, value_set=keys.cast(self.keys.type).combine_chunks())
        kept = pc.invert(found)
        files, places = self.files.filter(found), self.places.filter(found)
        named = pa.array(self.paths, pa.string()).take(files.combine_chunks())
        table = pa.table([named, places], names=["file_path", "pos"])
        rest = KeyIndex(self.keys.filter(kept), self.files.filter(kept), self.places.filter(kept), self.paths)
        return table.sort_by([("file_path", "ascending"), ("pos", "ascending")]), rest

    def with_file(self, path: str, keys: pa.ChunkedArray) -> KeyIndex:
        """And a new file that holds these keys, one row after the other."""
        number = len(self.paths)
        return KeyIndex(
            _joined(self.keys, keys.cast(self.keys.type)),
            _joined(self.files, pa.chunked_array([pa.repeat(pa.scalar(number, pa.int32()), len(keys))])),
            _joined(self.places, pa.chunked_array([pa.array(range(len(keys)), pa.int64())])),
            (*self.paths, path),
        )


def _joined(first: pa.ChunkedArray, second: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array([pa.chunked_array([*first.chunks, *second.chunks], first.type).combine_chunks()])


class KeyIndexes:
    """The indexes of this worker; those not used for long go first. From any thread."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, ...], tuple[Any, KeyIndex]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, table: tuple[str, ...], state: Any) -> KeyIndex | None:
        """The index of a table that is in this state: its uuid and snapshot."""
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
            while len(self._known) > 1 and self._rows() > ROWS_IN_ALL_MAX:
                self._known.popitem(last=False)

    def forget(self, table: tuple[str, ...]) -> None:
        with self._lock:
            self._known.pop(table, None)

    def _rows(self) -> int:
        return sum(len(index) for _, index in self._known.values())


def state_of(metadata: Mapping[str, Any]) -> tuple[str, int | None]:
    """What an index belongs to."""
    snapshot = metadata.get("current-snapshot-id")
    return (metadata["table-uuid"], None if snapshot in (None, -1) else snapshot)
