"""The content encoding of a body undone, with a limit on what comes out of it: gzip and zstd."""

from __future__ import annotations

import zlib

import zstandard

from catalog.errors import Invalid, TooLarge

_FRAMES_MAX = 100  # compressed pieces one after the other; each costs a copy of the rest
_ZSTD_SLICE_BYTES = 512  # 4 bytes can become 128 KiB: small slices keep what is not yet counted small
_ZSTD_WINDOW_BYTES_MAX = 8 * 2**20  # RFC 9659: what a sender may ask of a receiver


def decompress(body: bytes, encoding: str, bytes_max: int) -> bytes:
    """The body without its content encoding. Raises Invalid, or TooLarge above `bytes_max`."""
    for name in reversed([part.strip().lower() for part in encoding.split(",")]):
        if name in ("gzip", "x-gzip"):
            body = _gunzipped(body, bytes_max)
        elif name == "zstd":
            body = _unzstd(body, bytes_max)
        elif name not in ("", "identity"):
            raise Invalid(f"The content encoding {name[:40]!r} is not known: send gzip, zstd or identity")
    if len(body) > bytes_max:
        raise _too_large(bytes_max)
    return body


def _too_large(bytes_max: int) -> TooLarge:
    return TooLarge(
        f"The body is larger than {bytes_max} bytes when expanded: send fewer events in a request"
    )


def _gunzipped(body: bytes, bytes_max: int) -> bytes:
    expanded = b""
    rest = body
    for _ in range(_FRAMES_MAX):
        member = zlib.decompressobj(wbits=31)
        try:
            expanded += member.decompress(rest, bytes_max - len(expanded) + 1)
        except zlib.error as error:
            raise Invalid(f"The body is not gzip, as its content encoding says: {error}") from None
        if len(expanded) > bytes_max:
            raise _too_large(bytes_max)
        if not member.eof:
            raise Invalid("The body's gzip breaks off: send it whole")
        rest = member.unused_data.lstrip(b"\0")  # padding is allowed
        if not rest:
            return expanded
    raise _too_many()


def _unzstd(body: bytes, bytes_max: int) -> bytes:
    expanded = bytearray()
    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX)
    frame, frames = decompressor.decompressobj(), 1
    rest = memoryview(body)
    while rest:
        if frame.eof:
            frame, frames = decompressor.decompressobj(), frames + 1
            if frames > _FRAMES_MAX:
                raise _too_many()
        piece, rest = rest[:_ZSTD_SLICE_BYTES], rest[_ZSTD_SLICE_BYTES:]
        try:
            expanded += frame.decompress(piece)
        except zstandard.ZstdError as error:
            raise Invalid(f"The body is not zstd, as its content encoding says: {error}") from None
        if len(expanded) > bytes_max:
            raise _too_large(bytes_max)
        if frame.eof and frame.unused_data:
            rest = memoryview(frame.unused_data + bytes(rest))
    if not frame.eof:
        raise Invalid("The body's zstd breaks off: send it whole")
    return bytes(expanded)


def _too_many() -> Invalid:
    return Invalid(f"The body has more than {_FRAMES_MAX} compressed pieces: compress it in one")
