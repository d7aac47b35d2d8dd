"""Rebuild a mirror from its changes table: a Spark job of two stages.

    read a file of changes and group its rows by key -> fold one bucket of keys and write its rows

The result replaces all rows of the mirror in one commit. Rows pass from stage to stage through Spark's
shuffle. `replay.py` folds a bucket.
"""

from __future__ import annotations

import contextlib
import os
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pat
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFileContent
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyspark import SparkContext, TaskContext

from spark_jobs.messages import CHANGE_COLUMNS, STAGED, BadJob, ItemResult, TableJob, WorkItem
from spark_jobs.rewrite.replay import ROW_NUMBER, keyed, missing_key_reason, replayed
from spark_jobs.tables.data_files import Writer, field_of, file_io, key_mark, read_rows, without_extension
from spark_jobs.tables.key_files import KeyFiles, encode
from spark_jobs.tables.table_state import NotServed, TableStates, check_key

KIND = "rebuild"
BUCKET_ROWS = 500_000  # changes that one task folds
ROW_NUMBERS_PER_FILE = 2**32

Part = tuple[int, str]  # the number of a file in the order of landing, and its path


def item_of(table: TableJob, common: WorkItem, states: TableStates) -> WorkItem:
    """Return the work item of one table. BadJob if tasks cannot write the mirror."""
    if table.mirror is None or table.changes is None or not table.key:
        raise BadJob(f"{table.label} needs a mirror, a changes table and a key to be rebuilt")
    try:
        mirror = states.appended(table.mirror, table.states[table.mirror].metadata)
        check_key(TableMetadataUtil.parse_raw(mirror.metadata).schema(), table.key)
        changes = states.appended(table.changes, table.states[table.changes].metadata, is_read=True)
    except NotServed as error:
        raise BadJob(f"{table.label} cannot be rebuilt: {error}") from error
    return common.model_copy(
        update={"job": table.model_copy(update={"states": {}}), "mirror": mirror, "changes": changes}
    )


def write(
    context: SparkContext, item: WorkItem, io: FileIO, watch: Callable[[str, Callable[[], int]], None]
) -> list[ItemResult]:
    """Fold all changes and write the rows. `watch` gets the number of changes that have been read so far."""
    assert item.changes is not None
    parts, rows = _parts(TableMetadataUtil.parse_raw(item.changes.metadata), io)
    watch("changes", lambda: rows)
    if not parts:
        return [ItemResult(table=item.job.label, truncated=True)]
    buckets = max(1, -(-rows // BUCKET_ROWS))
    item = item.model_copy(update={"shares": buckets})
    read = context.accumulator(0)
    watch("changes-read", lambda: read.value)

    def read_part(part: Part) -> Iterator[tuple[int, bytes]]:
        for bucket, count, text in rows_by_bucket(item, part):
            read.add(count)
            yield bucket, text

    bucketed = context.parallelize(parts, len(parts)).flatMap(read_part)
    grouped = bucketed.groupByKey(buckets, partitionFunc=int)
    return grouped.map(partial(_build_pair, item)).collect()


def _parts(metadata: TableMetadata, io: FileIO) -> tuple[list[Part], int]:
    """Return the files of the changes table in the order in which they landed, and the number of
    their rows.
    """
    snapshot = metadata.current_snapshot()
    found, rows = [], 0
    for manifest in snapshot.manifests(io) if snapshot is not None else ():
        for entry in manifest.fetch_manifest_entry(io, discard_deleted=True):
            if entry.data_file.content != DataFileContent.DATA:
                raise BadJob("rows of the changes table were deleted: resync the table from its source")
            found.append((entry.sequence_number or 0, entry.data_file.file_path))
            rows += entry.data_file.record_count
    return [(number, path) for number, (_, path) in enumerate(sorted(found))], rows


# -- the first stage


def rows_by_bucket(item: WorkItem, part: Part) -> Iterator[tuple[int, int, bytes]]:
    """Group the rows of a file by bucket, as Arrow IPC, each with the number of rows that were read for it.
    Every bucket gets all truncates.
    """
    assert item.changes is not None
    io, metadata = file_io(item.io), TableMetadataUtil.parse_raw(item.changes.metadata)
    number, path = part
    first = number * ROW_NUMBERS_PER_FILE
    with io.new_input(path).open() as source:
        groups = pq.ParquetFile(source).num_row_groups
    for group in range(groups):
        rows = _read(io, path, metadata, item.job, group)
        row_numbers = pa.array(range(first, first + rows.num_rows), pa.int64())
        first += rows.num_rows
        given = keyed(rows.append_column(ROW_NUMBER, row_numbers), item.job)
        missing = missing_key_reason(given, item.job)
        if missing is not None:
            raise BadJob(missing)
        counted = rows.num_rows
        for bucket, some in _by_bucket(given, item.job, item.shares):
            yield bucket, counted, _bytes(some)
            counted = 0


def _read(io: FileIO, path: str, metadata: TableMetadata, job: TableJob, group: int) -> pa.Table:
    """Read the columns of the mirror, and the columns that describe each change, under their staged names."""
    known = {found.name for found in metadata.schema().fields}
    staged_names = {f"{STAGED}{name.replace('-', '_')}": job.names[name] for name in CHANGE_COLUMNS}
    wanted = [column for column in (*job.columns, *staged_names.values()) if column in known]
    rows = read_rows(io, path, metadata, wanted, group=group)
    columns = {column: without_extension(rows.column(column)) for column in job.columns if column in known}
    for staged, column in staged_names.items():
        if column in known:
            columns[staged] = rows.column(column)
        else:  # an older version landed the last batch of the table
            type_ = pa.int64() if staged == f"{STAGED}order" else pa.string()
            columns[staged] = pa.nulls(rows.num_rows, type_)
    return pa.table(columns)


def _by_bucket(rows: pa.Table, job: TableJob, buckets: int) -> Iterator[tuple[int, pa.Table]]:
    if buckets == 1:
        yield 0, rows
        return
    is_truncate = pc.equal(rows.column(f"{STAGED}operation"), "truncate")
    numbers = _bucket_numbers(encode([rows.column(column) for column in job.key]), buckets)
    for bucket in range(buckets):
        own = pc.or_kleene(pc.equal(numbers, bucket), is_truncate)
        some = rows.filter(own)
        if some.num_rows:
            yield bucket, some


def _bucket_numbers(keys: pa.Array, buckets: int) -> pa.Array:
    if pat.is_integer(keys.type):
        own = keys.cast(pa.int64())
        rest = pc.subtract(own, pc.multiply(pc.divide(own, buckets), buckets))
        return pc.abs(rest)
    found = keys.dictionary_encode()
    texts = found.dictionary.cast(pa.large_binary()) if not pat.is_temporal(keys.type) else found.dictionary
    numbers = [zlib.crc32(_as_bytes(text.as_py())) % buckets for text in texts]
    return pa.array(numbers, pa.int64()).take(found.indices)


def _as_bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _bytes(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


# -- the second stage


def _build_pair(item: WorkItem, pair: tuple[int, Iterable[bytes]]) -> ItemResult:
    return build(item, *pair)


def build(item: WorkItem, bucket: int, texts: Iterable[bytes]) -> ItemResult:
    """Write the rows of one bucket of keys."""
    assert item.mirror is not None
    job = item.job
    changes = pa.concat_tables([pa.ipc.open_stream(text).read_all() for text in texts])
    rows = replayed(changes, job)
    context = TaskContext.get()
    number = context.taskAttemptId() if context is not None else -1
    metadata = TableMetadataUtil.parse_raw(item.mirror.metadata)
    io = file_io(item.io)
    writer = Writer(metadata, io, f"{max(number, 0):05d}-r{bucket}-{uuid.uuid4()}")
    described, size = [], 0
    try:
        key_files, identity = KeyFiles(item.key_files), key_identity(metadata, job.key)
        for written in writer.write(rows, key_mark(metadata, job.key)):
            described.append(written.json)
            size += written.bytes
            keys = [without_extension(written.rows.column(column)) for column in job.key]
            key_files.put(written.path, identity, encode(keys))
    except BaseException as error:
        for path in writer.begun:
            with contextlib.suppress(OSError):
                io.delete(path)
        if not isinstance(error, Exception):
            raise
        return ItemResult.failed(error, job.label, bucket)
    return ItemResult(
        table=job.label,
        share=bucket,
        files={item.mirror.name: tuple(described)},
        paths=tuple(writer.begun),
        truncated=True,
        rows=rows.num_rows,
        bytes=size,
        attempt=number,
        pid=os.getpid(),
    )


def key_identity(metadata: TableMetadata, key: Sequence[str]) -> str:
    """Return a text that identifies a choice of key columns, for key files."""
    fields = [field_of(metadata.schema(), column) for column in key]
    return ";".join(f"{found.field_id} {found.field_type}" for found in fields)
