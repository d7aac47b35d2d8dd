"""Documents as they lie in a row: JSON, compressed with zstd at its quickest level."""

from __future__ import annotations

import threading

import zstandard

DOCUMENT_BYTES_MAX = 512 * 1024 * 1024
_local = threading.local()


def pack(document: bytes) -> bytes:
    """Compressed bytes for the row.

    Compressors are kept for each thread: they are costly to make and not shareable.
    """
    compressor: zstandard.ZstdCompressor | None = getattr(_local, "compressor", None)
    if compressor is None:
        compressor = _local.compressor = zstandard.ZstdCompressor(level=1)
    return compressor.compress(document)


def unpack(packed: bytes) -> bytes:
    """The JSON text again."""
    decompressor: zstandard.ZstdDecompressor | None = getattr(_local, "decompressor", None)
    if decompressor is None:
        decompressor = _local.decompressor = zstandard.ZstdDecompressor()
    return decompressor.decompress(packed, max_output_size=DOCUMENT_BYTES_MAX)
