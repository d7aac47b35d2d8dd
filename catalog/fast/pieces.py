"""Long documents in pieces: a commit encodes and compresses only the entries that it adds.

A table with 40,000 snapshots has about 28 MB of metadata, of which a commit changes one kilobyte. `encode`
cuts the lists that grow into pieces. The next version has the same `Piece` objects for entries that did not
change, and with them their compressed forms: zstd for the row, deflate for the metadata file and responses.

The gzip form has one member, because Java's reader may stop after the first of several. Each piece is
compressed alone: its blocks end at a byte and refer to nothing before them (Z_FULL_FLUSH). The checksum is
combined from those of the pieces.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from functools import cached_property, reduce
from itertools import accumulate, pairwise
from typing import Any

import orjson

from catalog.metadata.document import snapshot_id_of
from catalog.services.writes import GZIP_LEVEL
from catalog.store.database import pack

PIECE_ENTRIES = {"snapshots": 256, "snapshot-log": 1024}  # the lists that grow, and the entries of a piece
KEPT_ENTRIES_MIN = 64  # removed entries leave short pieces behind, which are joined to others
_GZIP_HEADER = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"  # deflate, no name, no time, unknown system
_CRC_POLYNOMIAL = 0xEDB88320
_ONE = 1 << 31  # the polynomial 1: CRC-32 has its bits in reverse order


class Piece:
    """A part of a text. `entries` are the entries of a list that it contains."""

    def __init__(self, text: bytes, entries: Sequence[Any] = ()) -> None:
        self.text = text
        self.entries = entries
        self._crc = zlib.crc32(text)
        self._shift = _shift(len(text))
        self._joined = (0, self._crc)  # the checksum of the text before this piece, and that of both

    @cached_property
    def deflated(self) -> bytes:
        return _deflate(self.text, zlib.Z_FULL_FLUSH)

    @cached_property
    def packed(self) -> bytes:
        return pack(self.text)

    def crc_after(self, crc: int) -> int:
        """The checksum of a text with this piece at its end: known if only later pieces have changed."""
        if self._joined[0] != crc:
            self._joined = (crc, _product(self._shift, crc) ^ self._crc)
        return self._joined[1]

    def is_at(self, entries: list[Any], at: int) -> bool:
        """Whether the list has the entries of this piece at this position.

        Equal entries may have different texts (1 and 1.0). Entries are only added at the end, so if the last
        one is the same object, the others are too.
        """
        end = at + len(self.entries)
        if end > len(entries) or entries[end - 1] is not self.entries[-1]:
            return False
        return entries[at:end] == self.entries


class LongDocument:
    """Implements `LongText`."""

    def __init__(self, pieces: list[Piece]) -> None:
        self.pieces = pieces
        # By its first entry. The piece holds the entry, so that no other object gets its id.
        self.known = {
            id(piece.entries[0]): piece for piece in pieces if len(piece.entries) >= KEPT_ENTRIES_MIN
        }
        self._length = sum(len(piece.text) for piece in pieces)

    def __len__(self) -> int:
        return self._length

    def __bytes__(self) -> bytes:
        return b"".join(self.parts())

    def parts(self) -> list[bytes]:
        return [piece.text for piece in self.pieces]

    def packed(self) -> bytes:
        return b"".join([piece.packed for piece in self.pieces])

    def gzipped(self, before: bytes = b"", after: bytes = b"") -> list[bytes]:
        crc = reduce(lambda crc, piece: piece.crc_after(crc), self.pieces, 0)
        crc ^= _product(_shift(self._length), zlib.crc32(before))
        length = len(before) + self._length + len(after)
        return [
            _GZIP_HEADER + _deflate(before, zlib.Z_FULL_FLUSH),
            *(piece.deflated for piece in self.pieces),
            _deflate(after, zlib.Z_FINISH),
            zlib.crc32(after, crc).to_bytes(4, "little") + (length % 2**32).to_bytes(4, "little"),
        ]


class IndexedSnapshots(list[Any]):
    """Snapshots with an index of their ids, for `catalog.metadata.document.has_snapshot`.

    Versions share the index, so it may have ids of other versions, but it has all ids of this list.
    """

    def __init__(self, snapshots: list[Any], positions: dict[int, int] | None = None) -> None:
        super().__init__(snapshots)
        self._positions = positions

    def copy(self) -> IndexedSnapshots:
        return IndexedSnapshots(self[:], self._positions)  # Python copies a plain list faster

    def append(self, snapshot: Any) -> None:
        if self._positions is not None:
            self._positions[snapshot["snapshot-id"]] = len(self)
        super().append(snapshot)

    def has_id(self, id_: int) -> bool:
        if self._positions is None:
            self._positions = {snapshot["snapshot-id"]: at for at, snapshot in enumerate(self)}
        at = self._positions.get(id_)
        if at is None or (at < len(self) and self[at]["snapshot-id"] == id_):
            return at is not None
        return id_ in map(snapshot_id_of, self)


def with_index(document: dict[str, Any]) -> dict[str, Any]:
    """The document with an index of its snapshots."""
    if isinstance(document["snapshots"], IndexedSnapshots):
        return document
    return document | {"snapshots": IndexedSnapshots(document["snapshots"])}


def encode(document: dict[str, Any], before: LongDocument | None = None) -> LongDocument:
    """The document as JSON, with the lists that grow first. Pieces of the previous version are used again."""
    names = [name for name in PIECE_ENTRIES if document.get(name)]
    pieces: list[Piece] = []
    text = b"{"
    for name in names:
        text += b'"%s":[' % name.encode()
        pieces.append(Piece(text))
        cut, last = _cut(document[name], PIECE_ENTRIES[name], before.known if before is not None else {})
        pieces += cut
        text = last + b"],"
    rest = orjson.dumps({key: value for key, value in document.items() if key not in names})
    is_end = rest == b"{}" and bool(names)
    pieces.append(Piece(text[:-1] + b"}" if is_end else text + rest[1:]))
    return LongDocument(pieces)


def _cut(entries: list[Any], size: int, known: Mapping[int, Piece]) -> tuple[list[Piece], bytes]:
    """Pieces for the entries, and the text of the last ones. These have no piece: the next version adds to
    them.
    """
    pieces: list[Piece] = []
    begin = at = 0  # entries from `begin` on have no piece yet
    while at < len(entries):
        piece = known.get(id(entries[at]))
        if piece is None or not piece.is_at(entries, at):
            at += 1
            continue
        pieces += _new_pieces(entries[begin:at], size)
        pieces.append(piece)
        begin = at = at + len(piece.entries)
    if begin == len(entries):
        return pieces[:-1], pieces[-1].text[:-1]
    last = begin + (len(entries) - begin - 1) // size * size
    return pieces + _new_pieces(entries[begin:last], size), orjson.dumps(entries[last:])[1:-1]


def _new_pieces(entries: list[Any], size: int) -> list[Piece]:
    """Pieces of at most `size` entries, each with a comma at its end."""
    ends = pairwise([*range(0, len(entries), size), len(entries)])
    return [Piece(orjson.dumps(entries[begin:end])[1:-1] + b",", entries[begin:end]) for begin, end in ends]


def _deflate(text: bytes, flush: int) -> bytes:
    compressor = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    return compressor.compress(text) + compressor.flush(flush)


# The checksum of two joined texts is that of the first, shifted by the length of the second, and that of the
# second. zlib computes it in the same way (crc32_combine), but Python does not provide that function.


def _product(a: int, b: int) -> int:
    """The product of two polynomials modulo that of CRC-32."""
    product = 0
    while a:
        if a & _ONE:
            product ^= b
        a = a << 1 & 0xFFFFFFFF
        b = b >> 1 ^ _CRC_POLYNOMIAL if b & 1 else b >> 1
    return product


# x to the power of 1, 2, 4, 8 and so on.
_POWERS = list(accumulate(range(63), lambda power, _: _product(power, power), initial=_ONE >> 1))


def _shift(length_bytes: int) -> int:
    """x to the power of the number of bits: the factor that shifts a checksum."""
    bits = length_bytes * 8
    powers = (power for index, power in enumerate(_POWERS) if bits >> index & 1)
    return reduce(_product, powers, _ONE)
