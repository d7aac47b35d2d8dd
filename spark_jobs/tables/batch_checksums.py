"""The checksums that a batch adds to a mirror: those of the rows that it writes, less those of the rows that
it deletes.

The hash of a row covers all columns of the mirror except those that Calve adds, in the order of their names.
Every change of these columns (a new one, another name, another type) changes the identity, and hashes of
different identities are never added. The hashes of the rows of a data file are kept beside its key file, so
that deleted rows need not be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from spark_jobs.messages import ItemResult
from spark_jobs.tables.checksums import BUCKET_DIGITS, key_digests, row_hashes

# Types whose values have the same text before they are written and after they are read.
_KNOWN_TYPES = (
    BinaryType, BooleanType, DateType, DecimalType, DoubleType, FixedType, FloatType, IntegerType, ListType,
    LongType, MapType, StringType, StructType, TimestampType, TimestamptzType, TimeType, UUIDType,
)  # fmt: skip
HASHES = pa.schema([("hash", pa.int64()), ("bucket", pa.uint8())])
Sums = dict[str, tuple[int, int]]  # by bucket: rows and sum of their hashes; both may be below zero


@dataclass(frozen=True, slots=True)
class HashedColumns:
    """The columns that hashes cover, and the key that decides the bucket."""

    columns: tuple[str, ...]
    key: tuple[str, ...]
    identity: str

    def hashes(self, rows: pa.Table) -> pa.RecordBatch:
        """Return the hash and the bucket of each row."""
        arrays = {name: _whole(rows.column(name)) for name in {*self.columns, *self.key}}
        hashes = row_hashes([arrays[name] for name in self.columns])
        digests = key_digests([arrays[name] for name in self.key])
        buckets = [int(digest[:BUCKET_DIGITS], 16) for digest in digests]
        return pa.record_batch([pa.array(hashes, pa.int64()), pa.array(buckets, pa.uint8())], schema=HASHES)


def hashed_columns(schema: Schema, key: Sequence[str], added: Iterable[str]) -> HashedColumns | None:
    """Return the columns that hashes of a mirror cover; None if it has a type that cannot be hashed before it
    is written.
    """
    own = set(added)
    fields = sorted((found for found in schema.fields if found.name not in own), key=lambda one: one.name)
    if not fields or not all(isinstance(found.field_type, _KNOWN_TYPES) for found in fields):
        return None
    described = [repr((found.name, found.field_id, str(found.field_type))) for found in fields]
    text = "\n".join([*described, repr(tuple(key))])
    columns = tuple(found.name for found in fields)
    identity = blake2b(text.encode(), digest_size=16).hexdigest()
    return HashedColumns(columns, tuple(key) or columns, identity)


@dataclass(slots=True)
class SumsOfBatch:
    """Adds up the rows that a task writes and deletes."""

    _rows: dict[int, int] = field(default_factory=dict)
    _hashes: dict[int, int] = field(default_factory=dict)

    def add(self, hashes: pa.RecordBatch) -> None:
        self._count(hashes, 1)

    def subtract(self, hashes: pa.RecordBatch) -> None:
        self._count(hashes, -1)

    def _count(self, hashes: pa.RecordBatch, sign: int) -> None:
        rows, sums = self._rows, self._hashes
        pairs = zip(hashes.column("hash").to_pylist(), hashes.column("bucket").to_pylist(), strict=True)
        for hash_, bucket in pairs:
            rows[bucket] = rows.get(bucket, 0) + sign
            sums[bucket] = sums.get(bucket, 0) + sign * hash_

    def sums(self) -> Sums:
        return {
            f"{bucket:02x}": (count, self._hashes[bucket])
            for bucket, count in self._rows.items()
            if count or self._hashes[bucket]
        }


def added(parts: Iterable[Sums]) -> Sums:
    """Return the sums of several tasks together."""
    total: Sums = {}
    for part in parts:
        for bucket, (rows, hash_) in part.items():
            before = total.get(bucket, (0, 0))
            total[bucket] = (before[0] + rows, before[1] + hash_)
    return total


def reported(results: Sequence[ItemResult]) -> dict[str, Any]:
    """Return the checksums of a batch for the server; nothing if a task could not count them."""
    if any(result.checksums is None for result in results):
        return {}
    sums = added(result.checksums or {} for result in results)
    found = {
        "hashed": next((result.hashed for result in results if result.hashed), ""),
        "emptied": any(result.truncated for result in results),
        "buckets": {bucket: [rows, str(hash_)] for bucket, (rows, hash_) in sums.items()},
    }
    return {"checksums": found}


def _whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
