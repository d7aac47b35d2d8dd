"""Key files: an index from key to row position, for one data file; and the hashes of its rows.

A key file belongs to one data file and one choice of key columns. It is an Arrow IPC file with the sorted
keys and the position of each, on the executor's local disk, memory-mapped. A data file never changes, so its
key file never needs to be invalidated and may be deleted at any time. The task that writes a data file also
writes its key file; another executor builds it on first use from the key columns. If checksums of the table
are kept, a second file has the hash of each row, in the order of the rows, under the same rules.

Key files are not synced to disk: that would take longer than the rest of a small batch. After a crash of the
machine some of them may have lost their content, so none from before its start is used.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import logging
import os
import tempfile
import uuid
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from spark_jobs.messages import KeyFileSettings

OPEN_MAX = 1000  # mapped at the same time, in each process
FILES_MAX = 50_000  # on disk: many small files would never reach the limit of bytes
LOOK_EVERY = 50  # new key files of a process between two scans of the whole folder
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_log = logging.getLogger(__name__)
_numbers = itertools.count(1)
_MAPPED: OrderedDict[Path, pa.RecordBatch] = OrderedDict()


@dataclass(frozen=True, slots=True)
class Keys:
    """The encoded keys of a data file in ascending order, and the position of each."""

    keys: pa.Array
    positions: pa.Array

    def find(self, wanted: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Return the rows that have one of the keys: for each, its index in `wanted` and its position."""
        first = pc.search_sorted(self.keys, wanted, side="left")
        end = pc.search_sorted(self.keys, wanted, side="right")
        matched = pc.indices_nonzero(pc.less(first, end)).cast(pa.int64())
        first, end = first.take(matched).cast(pa.int64()), end.take(matched).cast(pa.int64())
        if not pc.all(pc.equal(pc.subtract(end, first), 1)).as_py():  # a key with several rows
            ranges = [range(*ends) for ends in zip(first.to_pylist(), end.to_pylist(), strict=True)]
            again = [(index, n) for index, of in zip(matched.to_pylist(), ranges, strict=True) for n in of]
            matched = pa.array([index for index, _ in again], pa.int64())
            first = pa.array([position for _, position in again], pa.int64())
        return matched, self.positions.take(first)


def encode(columns: Sequence[pa.Array | pa.ChunkedArray]) -> pa.Array:
    """Return the keys as one array that can be sorted and searched. Two keys are equal if and only if their
    encodings are; the order has no other meaning.
    """
    if len(columns) == 1 and _is_plain(columns[0].type):
        return _whole(_normal(columns[0]))
    parts = []
    for column in columns:
        text = _as_binary(_whole(column))
        length = pc.binary_length(text).cast(pa.string()).cast(pa.large_binary())
        # The length before each part makes the encoding unambiguous.
        parts += [length, pa.scalar(b":", pa.large_binary()), text]
    return _whole(pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary())))


def sorted_keys(encoded: pa.Array) -> Keys:
    """Sort the keys of rows 0, 1, 2 and so on. Rows without a key are left out: no change refers to them."""
    order = pc.sort_indices(encoded)
    if encoded.null_count:
        order = order.slice(0, len(encoded) - encoded.null_count)  # nulls are at the end
    return Keys(encoded.take(order), order.cast(pa.int64()))


def _is_plain(type_: pa.DataType) -> bool:
    return any(
        check(type_)
        for check in (
            pat.is_int32,
            pat.is_int64,
            pat.is_date32,
            pat.is_timestamp,
            pat.is_string,
            pat.is_large_string,
            pat.is_binary,
            pat.is_large_binary,
        )
    )


def _normal(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Convert text and bytes to long offsets, which keys have."""
    if pat.is_string(column.type):
        return column.cast(pa.large_string())
    return column.cast(pa.large_binary()) if pat.is_binary(column.type) else column


def _as_binary(column: pa.Array) -> pa.Array:
    type_ = column.type
    if pat.is_date32(type_):
        column = column.cast(pa.int32())
    elif pat.is_timestamp(type_) or pat.is_time(type_):
        column = column.cast(pa.int64())
    elif pat.is_floating(type_):
        column = pc.add(column, pa.scalar(0, type_)).cast(pa.string())  # -0.0 is the same key as 0.0
    if pat.is_integer(column.type) or pat.is_decimal(type_) or pat.is_boolean(type_):
        column = column.cast(pa.string())
    elif pat.is_fixed_size_binary(type_):
        column = column.cast(pa.binary())
    return column.cast(pa.large_binary())


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


@lru_cache(maxsize=1)
def _boot() -> str:
    """Return a text that is another one after each start of the machine; "" if it has none."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


class KeyFiles:
    """The key files of this executor, at most `bytes_max` bytes. The least recently used are deleted
    first.
    """

    def __init__(self, settings: KeyFileSettings) -> None:
        folder = settings.folder or f"{tempfile.gettempdir()}/calve-key-files-{os.getuid()}"
        self._folder = Path(folder)
        self._bytes_max = settings.bytes_max
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._folder.stat().st_uid != os.getuid():
            raise PermissionError(f"the folder of key files, {self._folder}, belongs to another user")

    def get(self, data_file: str, key: str, make: Callable[[], pa.Array]) -> Keys:
        """Return the keys of a data file. `key` names the key columns and their types; `make` reads the
        encoded keys of the data file.
        """
        batch = self._found(self._path(data_file, key))
        if batch is None:
            return self.put(data_file, key, make())
        return Keys(batch.column("key"), batch.column("position"))

    def put(self, data_file: str, key: str, encoded: pa.Array) -> Keys:
        """Write the key file of a data file whose rows have these keys, in the order of the rows."""
        keys = sorted_keys(encoded)
        batch = pa.record_batch([keys.keys, keys.positions], names=["key", "position"])
        self._write(self._path(data_file, key), batch)
        return keys

    def hashes(self, data_file: str, columns: str, make: Callable[[], pa.RecordBatch]) -> pa.RecordBatch:
        """Return the hashes of the rows of a data file. `columns` identifies what they cover."""
        batch = self._found(self._path(data_file, f"hashes {columns}"))
        if batch is None:
            batch = make()
            self.put_hashes(data_file, columns, batch)
        return batch

    def put_hashes(self, data_file: str, columns: str, hashes: pa.RecordBatch) -> None:
        self._write(self._path(data_file, f"hashes {columns}"), hashes)

    def _found(self, path: Path) -> pa.RecordBatch | None:
        try:
            os.utime(path)  # the modification time is the time of last use
            if path not in _MAPPED:
                return self._mapped(path)
        except FileNotFoundError:
            _MAPPED.pop(path, None)
            return None
        except (OSError, pa.ArrowInvalid) as error:  # damaged: it is made again
            _log.warning("the key file %s cannot be read: %s", path, error)
            return None
        _MAPPED.move_to_end(path)
        return _MAPPED[path]

    def _write(self, path: Path, batch: pa.RecordBatch) -> None:
        """Write a file. A batch lands without it, though more slowly: the disk may be full."""
        began = path.with_suffix(f".{uuid.uuid4().hex}")
        try:
            with pa.OSFile(str(began), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
                writer.write_batch(batch)
            began.rename(path)  # at once: another task may look for it
        except OSError as error:
            with contextlib.suppress(OSError):
                began.unlink(missing_ok=True)
            _log.warning("the key file %s cannot be written: %s", path, error)
            self._bound(is_full=True)
            return
        _MAPPED.pop(path, None)  # the file that it replaces
        if next(_numbers) % LOOK_EVERY == 0 or batch.nbytes > self._bytes_max // LOOK_EVERY:
            self._bound()

    def _path(self, data_file: str, key: str) -> Path:
        name = hashlib.blake2b(f"{_boot()}\n{key}\n{data_file}".encode(), digest_size=20).hexdigest()
        return self._folder / f"{name}.arrow"

    def _mapped(self, path: Path) -> pa.RecordBatch:
        with pa.memory_map(str(path)) as source:
            found = _MAPPED[path] = pa.ipc.open_file(source).get_batch(0)
        if len(_MAPPED) > OPEN_MAX:
            _MAPPED.popitem(last=False)
        return found

    def _bound(self, *, is_full: bool = False) -> None:
        """Delete the oldest until the rest is within the limit, and half of them if the disk is full.
        Another task may do the same at the same time.
        """
        known = []
        for entry in os.scandir(self._folder):
            with contextlib.suppress(FileNotFoundError):
                found = entry.stat()
                known.append((found.st_mtime_ns, found.st_size, entry.path))
        left_bytes, left_files = sum(size for _, size, _ in known), len(known)
        bytes_max = min(self._bytes_max, left_bytes // 2) if is_full else self._bytes_max
        for _, size, path in sorted(known):
            if left_bytes <= bytes_max and left_files <= FILES_MAX:
                return
            with contextlib.suppress(FileNotFoundError):
                Path(path).unlink()
            _MAPPED.pop(Path(path), None)
            left_bytes, left_files = left_bytes - size, left_files - 1
