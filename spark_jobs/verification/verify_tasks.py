"""The tasks of a verification: read files, hash rows, fold the changes of a key, compare.

Tasks exchange rows with these columns: `k` the MD5 of the key, `o` the operation, `s` the source, `p` the
position, `t` the transaction, `c` the time of the batch, `f` and `n` the order inside it, `h` the hash of the
row, `d` its digests and its key.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import DataScan
from pyiceberg.table.metadata import TableMetadataUtil

from spark_jobs.tables.checksums import (
    BUCKET_DIGITS,
    Checksum,
    Checksums,
    checksums,
    column_digests,
    columns_that_differ,
    key_digests,
    row_hashes,
    texts,
)
from spark_jobs.tables.data_files import file_io
from spark_jobs.verification.changes_fold import DELETE, TRUNCATE, Change, fold

CHANGE_FIELDS = ("operation", "source", "position", "transaction", "commit-timestamp")
ORDER = "order"  # in its batch; older changes tables do not have it
ROW_SCHEMA = "k string, o string, s string, p string, t string, c long, f string, n long, h long, d string"
SUM_SCHEMA = "b string, n long, h string"
DIFFERENCE_SCHEMA = "kind string, key string, columns string"
_MIRROR = "mirror"  # the operation of a row of the mirror
_BEHIND_ALL_US = 2**62
_DIFFERENCES_A_BATCH = 10_000


class Side(BaseModel):
    """A table that tasks read: its metadata at the number, and the columns to read."""

    model_config = ConfigDict(frozen=True)
    metadata: str
    io: dict[str, str] = Field(default_factory=dict, repr=False)
    shares: int
    key: tuple[str, ...]  # all columns, if the table has no key
    columns: tuple[str, ...]
    names: dict[str, str] = Field(default_factory=dict)  # of the columns that describe a change


Batches = Iterator[pa.RecordBatch]


def _shares_of(ids: Batches) -> Iterator[int]:
    for batch in ids:
        yield from batch.column(0).to_pylist()


def _scan(side: Side, columns: Sequence[str], ids: Batches) -> Iterator[tuple[str, int, pa.RecordBatch]]:
    """Read the files of the shares. Yields the file, the number of the first row, and rows."""
    metadata, io = TableMetadataUtil.parse_raw(side.metadata), file_io(side.io)
    scan = DataScan(
        table_metadata=metadata, io=io, selected_fields=tuple(dict.fromkeys(columns)), case_sensitive=True
    )
    tasks = sorted(scan.plan_files(), key=lambda task: (-task.file.file_size_in_bytes, task.file.file_path))
    for share in _shares_of(ids):
        for task in tasks[share :: side.shares]:
            first_row = 0
            reader = ArrowScan(metadata, io, scan.projection(), AlwaysTrue())
            for batch in reader.to_record_batches([task]):
                yield task.file.file_path, first_row, batch
                first_row += batch.num_rows


def _arrays(batch: pa.RecordBatch, names: Sequence[str]) -> list[pa.Array]:
    return [batch.column(batch.schema.get_field_index(name)) for name in names]


def _sum_batch(sums: Mapping[str, Checksum]) -> pa.RecordBatch:
    rows = [(bucket, one.rows, str(one.hash)) for bucket, one in sums.items()]
    types = [pa.string(), pa.int64(), pa.string()]
    return _batch(rows, types, ["b", "n", "h"])


def _batch(rows: Sequence[Sequence[Any]], types: Sequence[pa.DataType], names: list[str]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    arrays = [pa.array(column, type_) for column, type_ in zip(columns, types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=names)


def mirror_sums(side: Side, ids: Batches) -> Batches:
    for _, _, batch in _scan(side, side.columns, ids):
        keys = key_digests(_arrays(batch, side.key))
        yield _sum_batch(checksums(keys, row_hashes(_arrays(batch, side.columns))))


def appended_sums(side: Side, ids: Batches) -> Batches:
    """Return the checksums of a table without a key: every insert is a row."""
    operation = side.names["operation"]
    for _, _, batch in _scan(side, (*side.columns, operation), ids):
        is_row = [name not in (DELETE, TRUNCATE) for name in _arrays(batch, [operation])[0].to_pylist()]
        kept = batch.filter(pa.array(is_row))
        keys = key_digests(_arrays(kept, side.key))
        yield _sum_batch(checksums(keys, row_hashes(_arrays(kept, side.columns))))


_ROW_TYPES = [*[pa.string()] * 5, pa.int64(), pa.string(), pa.int64(), pa.int64(), pa.string()]
_ROW_NAMES = ["k", "o", "s", "p", "t", "c", "f", "n", "h", "d"]


def _change_fields(side: Side, batch: pa.RecordBatch, file: str, first_row: int) -> list[list[Any]]:
    operation, source, position, transaction, commit = _arrays(
        batch, [side.names[name] for name in CHANGE_FIELDS]
    )
    row_numbers = list(range(first_row, first_row + batch.num_rows))
    order: list[int | None] = [None] * batch.num_rows
    if ORDER in side.names:
        order = _arrays(batch, [side.names[ORDER]])[0].to_pylist()
    return [
        operation.to_pylist(),
        [value or "" for value in source.to_pylist()],
        [value or "" for value in position.to_pylist()],
        transaction.to_pylist(),
        commit.cast(pa.int64()).to_pylist(),
        [file if number is None else "" for number in order],
        [at if number is None else number for at, number in zip(row_numbers, order, strict=True)],
    ]


def change_rows(side: Side, ids: Batches, *, buckets: frozenset[str] | None) -> Batches:
    """Return the changes except truncates; with `buckets`, only those of these buckets, with their keys and
    digests.
    """
    wanted = (*side.columns, *side.names.values())
    for file, first_row, batch in _scan(side, wanted, ids):
        yield _row_batch(side, batch, _change_fields(side, batch, file, first_row), buckets)


def mirror_rows(side: Side, ids: Batches, *, buckets: frozenset[str] | None) -> Batches:
    for file, first_row, batch in _scan(side, side.columns, ids):
        count = batch.num_rows
        nothing: list[list[Any]] = [[""] * count, [""] * count, [None] * count, [_BEHIND_ALL_US] * count]
        fields = [[_MIRROR] * count, *nothing, [file] * count, list(range(first_row, first_row + count))]
        yield _row_batch(side, batch, fields, buckets)


def _row_batch(
    side: Side, batch: pa.RecordBatch, fields: list[list[Any]], buckets: frozenset[str] | None
) -> pa.RecordBatch:
    keys = key_digests(_arrays(batch, side.key))
    hashes = row_hashes(_arrays(batch, side.columns))
    details: Sequence[str | None] = [None] * batch.num_rows
    if buckets is not None:
        digests = column_digests(_arrays(batch, side.columns))
        details = [f"{digest} {key}" for digest, key in zip(digests, _key_texts(side, batch), strict=True)]
    rows = [
        row
        for row in zip(keys, *fields, hashes, details, strict=True)
        if row[1] != TRUNCATE and (buckets is None or row[0][:BUCKET_DIGITS] in buckets)
    ]
    return _batch(rows, _ROW_TYPES, _ROW_NAMES)


def _key_texts(side: Side, batch: pa.RecordBatch) -> list[str]:
    """Return the keys as JSON, for reports."""
    values = [
        column.to_pylist() if pa.types.is_integer(column.type) else texts(column).to_pylist()
        for column in _arrays(batch, side.key)
    ]
    return [
        json.dumps(dict(zip(side.key, row, strict=True)), ensure_ascii=False)
        for row in zip(*values, strict=True)
    ]


def truncate_rows(side: Side, ids: Batches) -> Batches:
    for file, first_row, batch in _scan(side, tuple(side.names.values()), ids):
        fields = zip(*_change_fields(side, batch, file, first_row), strict=True)
        rows = [("", *row, 0, "") for row in fields if row[0] == TRUNCATE]
        yield _batch(rows, _ROW_TYPES, _ROW_NAMES)


def change_of(row: tuple[Any, ...], value: Any) -> Change[Any]:
    _, operation, source, position, transaction, commit_us, file, first_row, *_ = row
    return Change(operation, source, position, transaction, commit_us, file, first_row, value)


def _rows(batches: Batches) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def folded_sums(
    truncates: Sequence[Change[None]], through: Mapping[str, str] | None, batches: Batches
) -> Batches:
    sums: Checksums = {}
    for key, rows in groupby(_rows(batches), key=lambda row: row[0]):
        found = fold([change_of(row, row[8]) for row in rows], truncates, through).row
        if found is not None:
            bucket = key[:BUCKET_DIGITS]
            sums[bucket] = sums.get(bucket, Checksum()) + Checksum(1, found)
    yield _sum_batch(sums)


def compared(
    truncates: Sequence[Change[None]], columns: Sequence[str], has_key: bool, batches: Batches
) -> Batches:
    """Compare the changes and the mirror rows of each key. Returns the differences."""
    found = []
    for _, rows in groupby(_rows(batches), key=lambda row: row[0]):
        together = list(rows)
        changes = [change_of(row, row[9]) for row in together if row[1] != _MIRROR]
        mirror = [row[9] for row in together if row[1] == _MIRROR]
        compare = _keyed_difference if has_key else _appended_difference
        found += compare(changes, mirror, truncates, columns)
        if len(found) >= _DIFFERENCES_A_BATCH:
            yield _difference_batch(found)
            found = []
    yield _difference_batch(found)


def _difference_batch(found: Sequence[Difference]) -> pa.RecordBatch:
    return _batch(found, [pa.string()] * 3, ["kind", "key", "columns"])


Difference = tuple[str, str, str]


def _keyed_difference(
    changes: Sequence[Change[str]],
    mirror: Sequence[str],
    truncates: Sequence[Change[None]],
    columns: Sequence[str],
) -> list[Difference]:
    """Return the difference of one key. `mirror` has the rows of the key: their digests and their key."""
    outcome = fold(changes, truncates)
    if len(mirror) <= 1 and (mirror[0] if mirror else None) in (outcome.row, outcome.other):
        return []
    key = (mirror[0] if mirror else changes[-1].row).partition(" ")[2]
    if len(mirror) > 1:
        return [("repeated", key, "[]")]
    if not mirror:
        return [("missing", key, "[]")]
    if outcome.row is None:
        return [("unexpected", key, "[]")]
    names = columns_that_differ(outcome.row.partition(" ")[0], mirror[0].partition(" ")[0], columns)
    return [("changed", key, json.dumps(names))]


def _appended_difference(
    changes: Sequence[Change[str]],
    mirror: Sequence[str],
    truncates: Sequence[Change[None]],
    columns: Sequence[str],
) -> list[Difference]:
    expected = [change.row for change in changes if change.operation != DELETE]
    surplus = len(mirror) - len(expected)
    if not surplus:
        return []
    key = (mirror or expected)[0].partition(" ")[2]
    return [("unexpected" if surplus > 0 else "missing", key, "[]")] * abs(surplus)
