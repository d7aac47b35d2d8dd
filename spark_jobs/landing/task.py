"""One work item on an executor: a share of the keys of one table.

    read the staged rows -> fold them to one row a key -> find the old rows -> write files -> describe them

This module does not depend on Spark: a Spark task calls `run`, and so do tests. A task that fails deletes its
files.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyspark import TaskContext

from spark_jobs.landing import late
from spark_jobs.landing.fold import DELETE, Folded, MirrorRows, fold
from spark_jobs.landing.old_rows import Hit, OldRows, merged_vectors
from spark_jobs.landing.staged_rows import read_staged, staged_share
from spark_jobs.messages import STAGED, FoundPositions, ItemResult, TableState, WorkItem
from spark_jobs.tables.batch_checksums import HashedColumns, SumsOfBatch, hashed_columns
from spark_jobs.tables.data_files import (
    Writer,
    cast_column,
    field_of,
    file_io,
    key_mark,
    without_extension,
)
from spark_jobs.tables.key_files import KeyFiles, encode
from spark_jobs.tables.position_deletes import keep_deletes
from spark_jobs.tables.vectors import by_file


def load(number: int) -> int:
    """Do nothing: a Python worker that runs this imports the module and the libraries that batches need."""
    return number


def run(item: WorkItem) -> ItemResult:
    """Run an item. An error is returned as a result."""
    begun: list[str] = []  # the paths of files that may exist
    try:
        return _Attempt(item, begun).run()
    except BaseException as error:
        _discard(file_io(item.io), begun)
        if not isinstance(error, Exception):
            raise
        return ItemResult.failed(error, item.job.label, item.share)


def _discard(io: FileIO, paths: Sequence[str]) -> None:
    """Delete files that were written. The removal of orphan files deletes one that is left behind."""
    for path in paths:
        with contextlib.suppress(OSError):
            io.delete(path)


def first_stage(item: WorkItem) -> Iterator[tuple[str, ItemResult | FoundPositions]]:
    """Run an item whose deletion vectors a second stage writes. Yields its result, and for each data file the
    positions that it deletes.
    """
    result = run(item)
    yield f"result {item.job.label} {item.share}", result.model_copy(update={"found": ()})
    for found in result.found:
        yield f"positions {item.job.label} {found.file.path}", found


def second_stage(
    groups: Iterable[tuple[str, Iterable[ItemResult | FoundPositions]]],
) -> Iterator[ItemResult]:
    """Return the results of the first stage, and write the vectors of this partition: one file for each
    table.
    """
    tables: dict[str, list[FoundPositions]] = {}
    for _, values in groups:
        for value in values:
            if isinstance(value, ItemResult):
                yield value
            else:
                tables.setdefault(value.table, []).append(value)
    for label, found in tables.items():
        yield _vectors_of(label, found)


def _vectors_of(label: str, found: Sequence[FoundPositions]) -> ItemResult:
    mirror = found[0].mirror
    context = TaskContext.get()
    number = context.taskAttemptId() if context is not None else -1
    writer = Writer(
        TableMetadataUtil.parse_raw(mirror.metadata),
        file_io(found[0].io),
        f"{max(number, 0):05d}-v-{uuid.uuid4()}",
    )
    try:
        made = merged_vectors(writer, found)
    except BaseException as error:
        _discard(writer.io, writer.begun)
        if not isinstance(error, Exception):
            raise
        return ItemResult.failed(error, label, -1)
    return ItemResult(
        table=label,
        files={mirror.name: tuple(made.described)},
        removed=tuple(made.removed),
        paths=tuple(writer.begun),
        deleted=made.rows,
        bytes=made.bytes,
        attempt=number,
        pid=os.getpid(),
        checksums={},  # the first stage has counted the rows
    )


@dataclass
class _Table:
    """A table that the task writes to."""

    name: str
    writer: Writer
    described: list[str] = field(default_factory=list)

    @property
    def metadata(self) -> TableMetadata:
        return self.writer.metadata


class _Attempt:
    def __init__(self, item: WorkItem, begun: list[str]) -> None:
        self._item = item
        self._job = item.job
        self._io: FileIO = file_io(item.io)
        context = TaskContext.get()
        self._number = context.taskAttemptId() if context is not None else -1
        self._names = f"{max(self._number, 0):05d}-{item.share}-{uuid.uuid4()}"
        self._begun = begun
        self._bytes = 0
        self._staged_bytes = 0
        self._deleted = 0
        self._found: list[FoundPositions] = []
        self._removed: list[str] = []
        self._times_ms: dict[str, int] = {}
        self._mirror = self._table(item.mirror)
        self._changes = self._table(item.changes)
        self._rejects = self._table(item.rejects)
        self._sums = SumsOfBatch()
        self._hashed = self._hashed_columns()

    def _hashed_columns(self) -> HashedColumns | None:
        """Return what hashes cover, if checksums of the mirror are kept."""
        if self._mirror is None or not self._job.checksums:
            return None
        schema = self._mirror.metadata.schema()
        return hashed_columns(schema, self._job.key, self._job.names.values())

    def _table(self, state: TableState | None) -> _Table | None:
        if state is None:
            return None
        metadata = TableMetadataUtil.parse_raw(state.metadata)
        return _Table(state.name, Writer(metadata, self._io, self._names, self._begun))

    def run(self) -> ItemResult:
        folded = None
        if self._job.files and (self._mirror is not None or self._changes is not None):
            folded = self._write_rows()
        rejects = self._write_rejects()
        tables = [table for table in (self._mirror, self._changes, self._rejects) if table is not None]
        mirror = folded.mirror if folded is not None else None
        return ItemResult(
            table=self._job.label,
            share=self._item.share,
            files={table.name: tuple(table.described) for table in tables},
            removed=tuple(self._removed),
            found=tuple(self._found),
            paths=tuple(self._begun),
            truncated=mirror is not None and mirror.truncated,
            rows=mirror.rows.num_rows if mirror is not None else 0,
            deleted=self._deleted,
            rejects=rejects,
            repeated=folded.repeated if folded is not None else 0,
            clashes=folded.clashes.count if folded is not None else 0,
            differing=folded.clashes.differing if folded is not None else (),
            lost=folded.lost if folded is not None else 0,
            staged_bytes=self._staged_bytes,
            bytes=self._bytes,
            times_ms=self._times_ms,
            attempt=self._number,
            pid=os.getpid(),
            checksums=self._sums.sums() if self._hashed is not None else None,
            hashed=self._hashed.identity if self._hashed is not None else "",
        )

    def _write_rows(self) -> Folded:
        with self._timed("read"):
            rows = self._typed(staged_share(self._io, self._item))
        self._staged_bytes = rows.nbytes
        old = None
        if self._mirror is not None and self._item.mirror is not None and self._job.key:
            key_files = KeyFiles(self._item.key_files)
            old = OldRows(self._item.mirror, self._mirror.metadata, self._io, self._job.key, key_files)
        folded = self._folded(rows, old)
        if self._changes is not None and folded.changes is not None:
            with self._timed("changes"):
                self._write(self._changes, self._own(folded.changes), "-calve-a")
        if self._mirror is not None and folded.mirror is not None:
            if old is not None and not self._job.append_only:
                self._write_mirror(self._mirror, folded.mirror, old)
            else:
                with self._timed("mirror"):
                    kept = folded.mirror.rows.drop_columns([DELETE])
                    files = self._write(self._mirror, kept, key_mark(self._mirror.metadata, ()))
                if self._hashed is not None:
                    with self._timed("checksums"):
                        for written in files:
                            self._sums.add(self._hashed.hashes(written.rows))
        return folded

    def _typed(self, rows: pa.Table) -> pa.Table:
        """Return the staged rows with the types of the table, so that keys compare with those of data
        files.
        """
        target = self._mirror or self._changes
        assert target is not None
        schema = target.metadata.schema()
        for column in self._job.columns:
            type_ = field_of(schema, column).field_type
            names = [column, f"{STAGED}root_{column}"] if column in self._job.key else [column]
            for name in names:
                index = rows.schema.get_field_index(name)
                if index >= 0:
                    rows = rows.set_column(
                        index, name, without_extension(cast_column(rows.column(index), type_))
                    )
        return rows

    def _folded(self, rows: pa.Table, old: OldRows | None) -> Folded:
        past = None
        if self._job.late and self._changes is not None:
            with self._timed("past"):
                past = late.Changes(self._changes.metadata, self._io, self._job).past_of(rows)

        def bases(wanted: pa.Table, columns: list[str]) -> pa.Table:
            assert old is not None
            with self._timed("bases"):
                return old.bases(wanted, columns)

        has_rows = old is not None and bool(self._item.mirror and self._item.mirror.files)
        with self._timed("fold"):
            return fold(
                rows,
                self._job,
                self._item.commit_us,
                past=past,
                bases=bases if has_rows and not self._job.append_only else None,
            )

    def _own(self, changes: pa.Table) -> pa.Table:
        """Return the changes that this share writes. Every share reads all truncates; the first one writes
        them.
        """
        if not self._item.share or not self._job.counts["truncate"]:
            return changes
        operation = changes.column(self._job.names["operation"])
        return changes.filter(pc.not_equal(operation, "truncate"))

    def _write_mirror(self, table: _Table, folded: MirrorRows, old: OldRows) -> None:
        with self._timed("find"):
            hits = [] if folded.truncated else self._hits(folded, old)
        if self._hashed is not None:
            with self._timed("checksums"):
                for hashes in old.hashes(hits, self._hashed):
                    self._sums.subtract(hashes)
        with self._timed("deletes"):
            self._write_deletes(table, hits)
        with self._timed("mirror"):
            kept = folded.rows.filter(pc.invert(folded.rows.column(DELETE))).drop_columns([DELETE])
            key_files = KeyFiles(self._item.key_files)
            files = self._write(table, kept, old.mark)
            for written in files:
                keys = [without_extension(written.rows.column(column)) for column in self._job.key]
                key_files.put(written.path, old.identity, encode(keys))
        if self._hashed is not None:
            with self._timed("checksums"):
                for written in files:
                    hashes = self._hashed.hashes(written.rows)
                    key_files.put_hashes(written.path, self._hashed.identity, hashes)
                    self._sums.add(hashes)

    def _hits(self, folded: MirrorRows, old: OldRows) -> list[Hit]:
        wanted = encode([folded.rows.column(column) for column in self._job.key])
        hits = old.find(wanted)
        for truncate in folded.late_truncates:
            assert self._changes is not None, "a late batch needs a changes table"
            changes = late.Changes(self._changes.metadata, self._io, self._job)
            hits += old.without(changes.newer_than(truncate, folded.rows.schema))
        return hits

    def _write_deletes(self, table: _Table, hits: Sequence[Hit]) -> None:
        """Write one delete file for each partition: deletes belong to the partition of their data file."""
        if table.metadata.format_version > 2:
            self._delete_by_vectors(table, hits)
            return
        groups: dict[tuple[int, tuple[Any, ...]], list[Hit]] = {}
        for hit in hits:
            groups.setdefault((hit.file.spec_id, hit.file.partition), []).append(hit)
        for (spec_id, partition), found in groups.items():
            parts = [
                pa.table(
                    [pa.repeat(pa.scalar(hit.file.path, pa.string()), len(hit.positions)), hit.positions],
                    names=["file_path", "pos"],
                )
                for hit in found
            ]
            positions = pa.concat_tables(parts).group_by(["file_path", "pos"]).aggregate([])
            path, described, size = table.writer.write_deletes(positions, spec_id, partition)
            keep_deletes(path, positions)
            table.described.append(described)
            self._bytes += size
            self._deleted += positions.num_rows

    def _delete_by_vectors(self, table: _Table, hits: Sequence[Hit]) -> None:
        """Delete rows by deletion vectors. A share that has all keys writes the vectors; otherwise the second
        stage does.
        """
        assert self._item.mirror is not None
        state = self._item.mirror
        for file, positions in by_file((hit.file, hit.positions) for hit in hits):
            deletes = tuple(one for one in state.deletes if one.may_refer_to(file.path))
            mirror = state.model_copy(update={"files": (), "deletes": deletes})
            self._found.append(
                FoundPositions(
                    table=self._job.label,
                    mirror=mirror,
                    io=self._item.io,
                    file=file,
                    positions=tuple(positions),
                )
            )
        if self._item.shares == 1:
            made = merged_vectors(table.writer, self._found)
            self._found = []
            table.described += made.described
            self._removed += made.removed
            self._bytes += made.bytes
            self._deleted += made.rows

    def _write(self, table: _Table, rows: pa.Table, mark: str) -> list[Any]:
        written = []
        for file in table.writer.write(rows, mark):
            table.described.append(file.json)
            self._bytes += file.bytes
            written.append(file)
        return written

    def _write_rejects(self) -> int:
        if self._rejects is None or self._job.rejects is None:
            return 0
        rows = pa.concat_tables([read_staged(self._io, file) for file in self._job.rejects.files])
        with self._timed("rejects"):
            self._write(self._rejects, rows, "-calve-a")
        return int(rows.num_rows)

    @contextlib.contextmanager
    def _timed(self, step: str) -> Iterator[None]:
        started_s = time.perf_counter()
        try:
            yield
        finally:
            took_ms = (time.perf_counter() - started_s) * 1000
            self._times_ms[step] = self._times_ms.get(step, 0) + round(took_ms)
