"""Find the rows of a mirror for the keys of a task: their positions and their values.

The live row of a key is in the newest data file, by data sequence number, that has the key. Files with the
mark of this key have each key at most once alive among them, so the search in them ends at the first hit. A
file of another writer, or of a time when the table had another key, may repeat a key: each of these is always
searched, and so is a file that a compaction wrote. Deleted positions are left out. Otherwise a later batch
would delete them once more, and the totals of the snapshots would be wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import IntegerType, LongType, StringType

from spark_jobs.landing.fold import BASE
from spark_jobs.messages import FoundPositions, LiveFile, TableState
from spark_jobs.tables.batch_checksums import HashedColumns
from spark_jobs.tables.data_files import Writer, field_of, is_marked, key_mark, read_rows, without_extension
from spark_jobs.tables.key_files import KeyFiles, Keys, encode
from spark_jobs.tables.position_deletes import deleted_positions
from spark_jobs.tables.vectors import by_file, described_again, write_vectors


@dataclass(frozen=True, slots=True)
class Hit:
    """Rows of one data file that have keys of the batch: indexes among the requested keys, and positions."""

    file: LiveFile
    wanted: pa.Array
    positions: pa.Array


class OldRows:
    def __init__(
        self,
        state: TableState,
        metadata: TableMetadata,
        io: FileIO,
        key: Sequence[str],
        key_files: KeyFiles,
    ) -> None:
        self._metadata = metadata
        self._io = io
        self._key = list(key)
        self._key_files = key_files
        self._mark = key_mark(metadata, key)
        self._files = sorted(state.files, key=lambda file: file.sequence, reverse=True)
        self._deletes = state.deletes
        fields = [field_of(metadata.schema(), column) for column in key]
        self.identity = ";".join(f"{found.field_id} {found.field_type}" for found in fields)
        self._first_type = fields[0].field_type

    @property
    def mark(self) -> str:
        """Return how the names of data files end that have each key at most once alive."""
        return self._mark

    def find(self, wanted: pa.Array) -> list[Hit]:
        """Return where the live rows of the encoded keys are, from the newest file to the oldest."""
        hits: list[Hit] = []
        open_ = pa.array(range(len(wanted)), pa.int64())  # not yet found in a file with our mark
        ends = _ends(wanted)
        for file in self._files:
            is_ours = is_marked(file.path, self._mark)
            if (is_ours and not len(open_)) or not self._may_have(file, ends):
                continue
            keys = self._keys(file)
            found, positions = keys.find(wanted.take(open_) if is_ours else wanted)
            if not len(found):
                continue
            if is_ours:
                found = open_.take(found)
                open_ = open_.filter(pc.invert(pc.is_in(open_, found)))
            hits += self._alive(Hit(file, found, positions))
        return hits

    def without(self, kept: pa.Array) -> list[Hit]:
        """Return the positions of all rows whose keys are not among these."""
        hits = []
        for file in self._files:
            keys = self._keys(file)
            gone = pc.invert(pc.is_in(keys.keys, kept))
            positions = keys.positions.filter(gone)
            hits += self._alive(Hit(file, pa.nulls(len(positions), pa.int64()), positions))
        return hits

    def bases(self, wanted: pa.Table, columns: list[str]) -> pa.Table:
        """Return the live rows of these keys: the requested columns, and in BASE the number of each."""
        encoded = encode([wanted.column(column) for column in self._key])
        numbers, parts = wanted.column(BASE).combine_chunks(), []
        missing: set[int] = set(range(len(encoded)))
        for hit in self.find(encoded):
            new = [
                (index, position)
                for index, position in zip(hit.wanted.to_pylist(), hit.positions.to_pylist(), strict=True)
                if index in missing
            ]
            if not new:
                continue
            missing -= {index for index, _ in new}
            positions = pa.array([position for _, position in new], pa.int64())
            rows = read_rows(self._io, hit.file.path, self._metadata, columns, positions)
            number = numbers.take(pa.array([index for index, _ in new], pa.int64()))
            values = [without_extension(rows.column(column)) for column in columns]
            parts.append(pa.table([number, *values], names=[BASE, *columns]))
        if parts:
            return pa.concat_tables(parts)
        none = _schema_of(self._metadata, columns).empty_table()
        return none.add_column(0, BASE, pa.array([], pa.int64()))

    def _alive(self, hit: Hit) -> list[Hit]:
        """Return the hit without deleted positions; nothing if all of them are."""
        alive = pc.invert(pc.is_in(hit.positions, deleted_positions(self._io, self._deletes, hit.file)))
        positions = hit.positions.filter(alive)
        return [Hit(hit.file, hit.wanted.filter(alive), positions)] if len(positions) else []

    def hashes(self, hits: Sequence[Hit], hashed: HashedColumns) -> Iterator[pa.RecordBatch]:
        """Return the hashes of the rows of the hits, each row once."""
        for file, positions in by_file((hit.file, hit.positions) for hit in hits):
            yield self._hashes(file, hashed).take(pa.array(positions, pa.int64()))

    def _hashes(self, file: LiveFile, hashed: HashedColumns) -> pa.RecordBatch:
        def make() -> pa.RecordBatch:
            columns = list(dict.fromkeys((*hashed.columns, *hashed.key)))
            return hashed.hashes(read_rows(self._io, file.path, self._metadata, columns))

        return self._key_files.hashes(file.path, hashed.identity, make)

    def _keys(self, file: LiveFile) -> Keys:
        def make() -> pa.Array:
            rows = read_rows(self._io, file.path, self._metadata, self._key)
            return encode([without_extension(rows.column(column)) for column in self._key])

        return self._key_files.get(file.path, self.identity, make)

    def _may_have(self, file: LiveFile, ends: tuple[object, object] | None) -> bool:
        """Return whether a file may have one of the keys, by the manifest's bounds of the first key
        column.
        """
        if ends is None or file.lower is None or file.upper is None or len(self._key) > 1:
            return True
        lower, upper = bytes.fromhex(file.lower), bytes.fromhex(file.upper)
        # compared as bytes: a bound may be cut within a character
        if isinstance(self._first_type, StringType):
            first, last = str(ends[0]).encode(), str(ends[1]).encode()
            return lower <= last and first <= upper
        # four bytes, if it was written before a type promotion
        if isinstance(self._first_type, IntegerType | LongType):
            low, high = (int.from_bytes(bound, "little", signed=True) for bound in (lower, upper))
            return bool(low <= ends[1] and ends[0] <= high)  # type: ignore[operator]
        return True


def _schema_of(metadata: TableMetadata, columns: Sequence[str]) -> pa.Schema:
    schema = schema_to_pyarrow(metadata.schema(), include_field_ids=False)
    return pa.schema([schema.field(column) for column in columns])


def _ends(wanted: pa.Array) -> tuple[object, object] | None:
    """Return the smallest and the largest key, if keys are numbers or text; other bounds are not compared."""
    if not len(wanted) or not (pat.is_integer(wanted.type) or pat.is_large_string(wanted.type)):
        return None
    found = pc.min_max(wanted)
    return found["min"].as_py(), found["max"].as_py()


@dataclass(frozen=True, slots=True)
class NewVectors:
    """Descriptions of new deletion vectors, and of those that they replace."""

    described: list[str]
    removed: list[str]
    bytes: int
    rows: int  # newly deleted


def merged_vectors(writer: Writer, found: Sequence[FoundPositions]) -> NewVectors:
    """Write the vectors of all data files to one Puffin file. Each includes the positions that were deleted
    before.
    """
    vectors: list[tuple[LiveFile, list[int]]] = []
    removed, rows = [], 0
    known = {one.file.path: one.mirror.deletes for one in found}
    parts = ((one.file, pa.array(one.positions, pa.int64())) for one in found)
    for file, positions in by_file(parts):
        deletes = known[file.path]
        gone = set(deleted_positions(writer.io, deletes, file).to_pylist())
        new = set(positions) - gone
        if not new:
            continue  # all of these rows were deleted before
        vectors.append((file, sorted(gone | new)))
        removed += [described_again(one, file) for one in deletes if one.is_vector]
        rows += len(new)
    if not vectors:
        return NewVectors([], [], 0, 0)
    _, described, size = write_vectors(writer, vectors)
    return NewVectors(described, removed, size, rows)
