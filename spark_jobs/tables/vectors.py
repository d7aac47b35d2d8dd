"""Read and write deletion vectors, the deletes of tables of format version 3. Each belongs to one data file.

A new vector contains all deleted positions of its data file, including those of the vector that it replaces.
So all shares of a batch must agree on one vector: if a table has several shares, a second stage of the same
Spark job groups the positions by data file. Vectors are stored in Puffin files.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.table.deletion_vector import DeletionVector
from pyroaring import BitMap

from spark_jobs.messages import LiveDeletes, LiveFile
from spark_jobs.tables.data_files import POS_ID, Writer

MAGIC = b"PFA1"
VECTOR_MAGIC = bytes((0xD1, 0xD3, 0x39, 0x64))
_LOW = 2**32
_FRAME_BYTES = 8  # length and magic before a vector; a checksum of 4 bytes follows it


def read_vector(io: FileIO, deletes: LiveDeletes) -> pa.Array:
    """Return the deleted positions of a data file."""
    assert deletes.offset is not None
    assert deletes.bytes is not None
    with io.new_input(deletes.path).open() as source:
        source.seek(deletes.offset)
        blob = source.read(deletes.bytes)
    bitmaps = DeletionVector._deserialize_bitmap(blob[_FRAME_BYTES:-4])  # noqa: SLF001 - it has no public way
    positions = [(high * _LOW) + low for high, bitmap in enumerate(bitmaps) for low in bitmap]
    return pa.array(positions, pa.int64())


def write_vectors(
    writer: Writer, vectors: Sequence[tuple[LiveFile, Sequence[int]]]
) -> tuple[str, list[str], int]:
    """Write one Puffin file with the vectors of these data files. Returns path, descriptions and size."""
    path = writer.begin("-calve-deletes.puffin")
    content, blobs, ranges = MAGIC, [], []
    for file, positions in vectors:
        blob = _blob(positions)
        ranges.append((len(content), len(blob)))
        blobs.append(
            {
                "type": "deletion-vector-v1",
                "fields": [POS_ID],
                "snapshot-id": -1,
                "sequence-number": -1,
                "offset": len(content),
                "length": len(blob),
                "properties": {"referenced-data-file": file.path, "cardinality": str(len(positions))},
            }
        )
        content += blob
    footer = json.dumps({"blobs": blobs, "properties": {}}).encode()
    content += MAGIC + footer + len(footer).to_bytes(4, "little") + bytes(4) + MAGIC
    with writer.io.new_output(path).create() as sink:
        sink.write(content)
    described = [
        _described(path, len(content), file, len(positions), *range_)
        for (file, positions), range_ in zip(vectors, ranges, strict=True)
    ]
    return path, described, len(content)


def described_again(deletes: LiveDeletes, file: LiveFile) -> str:
    """Describe an existing vector with the fields that its removal needs."""
    assert deletes.offset is not None
    assert deletes.bytes is not None
    return _described(deletes.path, deletes.file_bytes, file, deletes.rows, deletes.offset, deletes.bytes)


def _described(path: str, size: int, file: LiveFile, count: int, offset: int, length: int) -> str:
    return json.dumps(
        {
            "content": "position-deletes",
            "file-path": path,
            "file-format": "puffin",
            "spec-id": file.spec_id,
            "partition": list(file.partition),
            "record-count": count,
            "file-size-in-bytes": size,
            "referenced-data-file": file.path,
            "content-offset": offset,
            "content-size-in-bytes": length,
        }
    )


def _blob(positions: Sequence[int]) -> bytes:
    by_key: dict[int, list[int]] = {}
    for position in positions:
        by_key.setdefault(position // _LOW, []).append(position % _LOW)
    vector = len(by_key).to_bytes(8, "little")
    for key in sorted(by_key):
        bitmap = BitMap(by_key[key])
        bitmap.run_optimize()
        vector += key.to_bytes(4, "little") + bitmap.serialize()
    checked = VECTOR_MAGIC + vector
    return len(checked).to_bytes(4, "big") + checked + zlib.crc32(checked).to_bytes(4, "big")


def by_file(parts: Iterable[tuple[LiveFile, pa.Array]]) -> Iterator[tuple[LiveFile, list[int]]]:
    """Return the positions of each data file, sorted and without duplicates."""
    found: dict[str, tuple[LiveFile, set[int]]] = {}
    for file, positions in parts:
        found.setdefault(file.path, (file, set()))[1].update(positions.to_pylist())
    for file, numbers in found.values():
        yield file, sorted(numbers)
