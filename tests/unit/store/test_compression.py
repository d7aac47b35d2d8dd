"""Documents in a row: what is packed is unpacked again, whatever was packed before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from catalog.store import database
from catalog.store.database import pack, unpack

CHUNK = 16


@pytest.fixture(autouse=True, scope="module")
def small_chunks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(database, "CHUNK_BYTES", CHUNK)
        patched.setattr(database, "CHUNKED_BYTES_MIN", 2 * CHUNK)
        yield


@given(st.lists(st.tuples(st.integers(0, 200), st.binary(max_size=60)), min_size=1, max_size=6))
def test_versions_that_share_chunks_are_unpacked_as_they_were(changes: list[tuple[int, bytes]]) -> None:
    document = bytes(range(200))
    for start, change in changes:
        document = document[:start] + change + document[start + len(change) // 2 :]
        assert unpack(pack(document)) == document


@given(st.integers(0, 4), st.integers(-2, 2))
def test_any_length_is_unpacked_as_it_was(chunks: int, more: int) -> None:
    for letter in (b"a", b"a", b"b"):
        document = letter * max(0, chunks * CHUNK + more)
        assert unpack(pack(document)) == document


def test_only_chunks_that_changed_are_compressed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    document = b"".join(bytes([number]) * CHUNK for number in range(8))
    pack(document)
    compressed: list[bytes] = []
    compressor = database._compressor()

    class Counting:
        def compress(self, data: bytes) -> bytes:
            compressed.append(data)
            return compressor.compress(data)

    monkeypatch.setattr(database, "_compressor", Counting)
    changed = document[: 7 * CHUNK] + b"changed, and longer than before"
    assert unpack(pack(changed)) == changed
    assert compressed == [changed[7 * CHUNK : 8 * CHUNK], changed[8 * CHUNK :]]


def test_a_document_that_is_cut_off_is_no_document() -> None:
    for document in (b"short", bytes(range(200))):
        packed = pack(document)
        for length in range(len(packed)):
            if length not in _frame_ends(packed):
                with pytest.raises(zstandard.ZstdError):
                    unpack(packed[:length])


def _frame_ends(packed: bytes) -> set[int]:
    """Where a whole number of frames ends; nothing can be said about those that are missing."""
    ends, rest = set(), packed
    while rest:
        frame = zstandard.ZstdDecompressor().decompressobj()
        frame.decompress(rest)
        rest = frame.unused_data
        ends.add(len(packed) - len(rest))
    return ends
