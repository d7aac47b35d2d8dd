"""Read the rows that may differ between two snapshots of a table, in batches.

A data file that both snapshots have with the same delete files has the same rows in both, and is not read.
Of a data file that both have with different delete files, only the rows at positions that one of them deletes
and the other does not are kept. All other files are read completely.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import ArrowScan, _read_deletes
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import DataScan, FileScanTask

from query.tables.moments import TableMoment
from query.tables.opening import errors_as_catalog_errors
from query.tables.reading import planned, scan_at

DELETE_FILES_KEPT = 32
_POSITIONS = pa.chunked_array([], pa.int64())


@dataclass(frozen=True, slots=True)
class Part:
    """A data file to read. `positions`: only these rows; None: all rows that are not deleted."""

    task: FileScanTask
    positions: pa.Array | None = None


@dataclass(frozen=True, slots=True)
class Side:
    """The files that only one of the two snapshots has."""

    scan: DataScan
    parts: Sequence[Part]

    def batches(self, schema: Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows in columns of `schema`, one batch in memory at a time."""
        scan = self.scan
        with errors_as_catalog_errors():
            reader = ArrowScan(scan.table_metadata, scan.io, schema, scan.row_filter, scan.case_sensitive)
            deletes = _DeleteFiles(scan.io)
            for part in self.parts:
                yield from _batches(reader, deletes, part)


def differing(old: TableMoment, new: TableMoment) -> tuple[Side, Side, dict[str, int]]:
    """Return what to read of each snapshot, and the numbers of files."""
    scans = scan_at(old), scan_at(new)
    before, after = ({task.file.file_path: task for task in planned(scan)} for scan in scans)
    added = [task for path, task in after.items() if path not in before]
    removed = [task for path, task in before.items() if path not in after]
    only_old, only_new = [Part(task) for task in removed], [Part(task) for task in added]
    deletes = _DeleteFiles(scans[1].io)
    for path in sorted(before.keys() & after.keys()):
        if _deletes(before[path]) != _deletes(after[path]):
            with errors_as_catalog_errors():
                was, now = deletes.positions(before[path]), deletes.positions(after[path])
            only_old += _part(before[path], _without(now, was))
            only_new += _part(after[path], _without(was, now))
    numbers = {
        "added": len(added),
        "removed": len(removed),
        "kept": len(after) - len(added),
        "added_bytes": sum(task.file.file_size_in_bytes for task in added),
        "removed_bytes": sum(task.file.file_size_in_bytes for task in removed),
    }
    return Side(scans[0], only_old), Side(scans[1], only_new), numbers


def _part(task: FileScanTask, positions: pa.Array) -> list[Part]:
    return [Part(task, positions)] if len(positions) else []


def _deletes(task: FileScanTask) -> frozenset[tuple[str, int | None]]:
    return frozenset((file.file_path, getattr(file, "content_offset", None)) for file in task.delete_files)


class _DeleteFiles:
    """Reads delete files. One may apply to many data files, so the last few are cached."""

    def __init__(self, io: FileIO) -> None:
        self._io = io
        self._kept: OrderedDict[str, dict[str, pa.ChunkedArray]] = OrderedDict()

    def positions(self, task: FileScanTask) -> pa.ChunkedArray:
        """Return the deleted positions of the data file."""
        found = [self._read(file).get(task.file.file_path, _POSITIONS) for file in task.delete_files]
        chunks = [chunk.cast(pa.int64()) for positions in found for chunk in positions.chunks]
        return pa.chunked_array(chunks, pa.int64())

    def _read(self, file: DataFile) -> dict[str, pa.ChunkedArray]:
        path = file.file_path
        if path not in self._kept:
            self._kept[path] = _read_deletes(self._io, file)
            if len(self._kept) > DELETE_FILES_KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(path)
        return self._kept[path]


def _without(positions: pa.ChunkedArray, others: pa.ChunkedArray) -> pa.Array:
    return positions.filter(pc.invert(pc.is_in(positions, value_set=others))).unique()


def _batches(reader: ArrowScan, deletes: _DeleteFiles, part: Part) -> Iterator[pa.RecordBatch]:
    path = part.task.file.file_path
    if part.positions is None:
        deleted = {path: [deletes.positions(part.task)]} if part.task.delete_files else {}
        yield from _lazy(reader, part.task, deleted)
        return
    wanted, start = part.positions, 0
    for batch in _lazy(reader, part.task, {}):  # without deletes, the index of a row is its position
        inside = pc.and_(pc.greater_equal(wanted, start), pc.less(wanted, start + batch.num_rows))
        indices = pc.subtract(wanted.filter(inside), start)
        start += batch.num_rows
        if len(indices):
            yield batch.take(indices)


def _lazy(
    reader: ArrowScan, task: FileScanTask, deletes: dict[str, list[pa.ChunkedArray]]
) -> Iterator[pa.RecordBatch]:
    """Yield batches lazily: `ArrowScan.to_record_batches` would hold all batches of the file at once."""
    yield from reader._record_batches_from_scan_tasks_and_deletes([task], deletes)  # noqa: SLF001 - see above
