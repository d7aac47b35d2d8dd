"""Checksums of rows that every engine computes alike. Pure, over Arrow.

A value has one text form, independent of the engine that wrote it (docs/verification.md lists the types). The
text of a row has, for each column, the number of characters of the value's text, a colon and the text, or `-`
for null. So two different rows never have the same text. The hash of a row is the number given by the first
15 hexadecimal digits of the MD5 of its text. The first digits of the MD5 of its key are its bucket. The
checksum of a bucket is the number of its rows and the sum of their hashes: the order of rows does not matter,
and two equal rows do not cancel each other out.
"""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import md5
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

HASH_DIGITS = 15  # 60 bits: a sum of them fits the exact number types of all engines
BUCKET_DIGITS = 2
DIGEST_DIGITS = 8  # of one column, to find the columns of a row that differ
_UNUSED_BITS = 64 - 4 * HASH_DIGITS  # of the first eight bytes
NULL = "-"
TEXT = pa.large_string()


@dataclass(frozen=True, slots=True)
class Checksum:
    rows: int = 0
    hash: int = 0

    def __add__(self, other: Checksum) -> Checksum:
        return Checksum(self.rows + other.rows, self.hash + other.hash)


Checksums = dict[str, Checksum]  # by bucket


def differing(one: Mapping[str, Checksum], other: Mapping[str, Checksum]) -> list[str]:
    """Return the buckets whose checksums differ."""
    none = Checksum()
    return sorted(name for name in {*one, *other} if one.get(name, none) != other.get(name, none))


def checksums(keys: Iterable[str], hashes: Iterable[int], digits: int = BUCKET_DIGITS) -> Checksums:
    """Return the checksum of each bucket, from the MD5 of the keys and the hashes of the rows."""
    rows: dict[str, int] = {}
    sums: dict[str, int] = {}
    for key, hash_ in zip(keys, hashes, strict=True):
        bucket = key[:digits]
        rows[bucket] = rows.get(bucket, 0) + 1
        sums[bucket] = sums.get(bucket, 0) + hash_
    return {bucket: Checksum(count, sums[bucket]) for bucket, count in rows.items()}


def key_digests(columns: Sequence[pa.Array]) -> list[str]:
    """Return the MD5 of each key; its first digits are the bucket."""
    return [md5(text.encode()).hexdigest() for text in _row_texts(columns)]  # noqa: S324 - no secret


def row_hashes(columns: Sequence[pa.Array]) -> list[int]:
    digests = (md5(text.encode()).digest() for text in _row_texts(columns))  # noqa: S324
    return [int.from_bytes(digest[:8], "big") >> _UNUSED_BITS for digest in digests]


def column_digests(columns: Sequence[pa.Array]) -> list[str]:
    """Return, for each row, the digests of its values, joined."""
    parts = [
        [NULL * DIGEST_DIGITS if text is None else md5(text.encode()).hexdigest()[:DIGEST_DIGITS]  # noqa: S324
         for text in texts(column).to_pylist()]
        for column in columns
    ]  # fmt: skip
    return ["".join(row) for row in zip(*parts, strict=True)]


def columns_that_differ(one: str, other: str, names: Sequence[str]) -> list[str]:
    """Return the columns whose digests differ between two rows."""
    return [
        name
        for index, name in enumerate(names)
        if one[index * DIGEST_DIGITS :][:DIGEST_DIGITS] != other[index * DIGEST_DIGITS :][:DIGEST_DIGITS]
    ]


def _row_texts(columns: Sequence[pa.Array]) -> list[str]:
    parts = []
    for column in columns:
        found = texts(column)
        length = pc.utf8_length(found).cast(TEXT)
        parts.append(pc.fill_null(pc.binary_join_element_wise(length, found, pa.scalar(":", TEXT)), NULL))
    if len(parts) == 1:
        return list(parts[0].to_pylist())
    return list(pc.binary_join_element_wise(*parts, pa.scalar("", TEXT)).to_pylist())


def texts(column: pa.Array) -> pa.Array:
    """Return the text of each value; null stays null."""
    type_ = column.type
    if isinstance(type_, pa.UuidType):
        return _each(column.storage, lambda value: str(uuid.UUID(bytes=value)))
    if pat.is_floating(type_):
        return _each(column.cast(pa.float64()), _float_text)
    if pat.is_decimal(type_):
        return _each(column, lambda value: format(value, "f"))
    if pat.is_date32(type_):
        return column.cast(pa.int32()).cast(TEXT)
    if pat.is_timestamp(type_) or pat.is_time64(type_):
        return column.cast(pa.int64()).cast(TEXT)
    if pat.is_binary(type_) or pat.is_large_binary(type_) or pat.is_fixed_size_binary(type_):
        return _each(column, bytes.hex)
    if pat.is_nested(type_):
        return _each(column, _nested_text)
    return column.cast(TEXT)


def _each(column: pa.Array, text: Any) -> pa.Array:
    return pa.array([None if value is None else text(value) for value in column.to_pylist()], TEXT)


def _float_text(value: float) -> str:
    """Return 17 significant digits, which identify every double."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return f"{value + 0.0:.16e}"  # -0.0 becomes 0.0


def _nested_text(value: Any) -> str:
    return json.dumps(value, default=str, sort_keys=True, ensure_ascii=False)
