"""The body of a request, read whole before the application sees any of it.

`read` counts real bytes, so that neither a wrong Content-Length nor chunks without end can take more memory
than the limit. `expand` undoes gzip and zstd under the same limit, whatever the ratio. What is wrong with a
body is a `Refused`, which says how to answer.
"""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]

CODINGS = frozenset({b"gzip", b"x-gzip", b"zstd"})
ZSTD_WINDOW_BYTES_MAX = 8 * 2**20  # what RFC 8878 asks every decoder to support, and no more


class Refused(Exception):
    """The request is answered with this status, type and message, and the connection ends.

    `unread`: the client may still be sending.
    """

    def __init__(self, status: int, error_type: str, message: str, *, unread: bool = False) -> None:
        super().__init__(message)
        self.status, self.error_type, self.message, self.unread = status, error_type, message, unread


class Disconnected(Exception):
    """The client has gone away before its request was complete. Nobody is left to answer."""


def too_large(bytes_max: int, *, unread: bool = False) -> Refused:
    message = f"The body is larger than {bytes_max} bytes (setting body_bytes_max)."
    return Refused(413, "PayloadTooLargeException", message, unread=unread)


def declared_length(headers: dict[bytes, bytes], bytes_max: int) -> int | None:
    """Content-Length, or None. Refused if the body would be too large, before any of it is read."""
    text = headers.get(b"content-length")
    if text is None:
        return None
    if not text.isdigit():
        raise Refused(400, "BadRequestException", "Content-Length is not a number.")
    if len(text) > 18 or int(text) > bytes_max:
        raise too_large(bytes_max, unread=True)
    return int(text)


async def read(receive: Receive, length: int | None, bytes_max: int) -> bytes:
    """The whole body, of exactly `length` bytes if that is known."""
    message = await receive()
    pieces: list[bytes] = []
    size = 0
    while True:
        if message["type"] != "http.request":
            raise Disconnected
        piece = message.get("body", b"")
        size += len(piece)
        if size > bytes_max:
            raise too_large(bytes_max, unread=True)
        pieces.append(piece)
        if not message.get("more_body", False):
            break
        message = await receive()
    if length is not None and size != length:
        # A server that mislays a body must never look as if it had none (uvicorn does, on `Upgrade: h2c`).
        text = f"The body has {size} bytes, but Content-Length says {length}."
        raise Refused(400, "BadRequestException", text)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def expand(data: bytes, coding: bytes, bytes_max: int) -> bytes:
    """The body as it was before `coding`. Memory stays within the limit for any input."""
    if coding == b"zstd":
        return _expand_zstd(data, bytes_max)
    return _expand_gzip(data, bytes_max)


def _expand_gzip(data: bytes, bytes_max: int) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while data or not pieces:  # a gzip body may have several members
        member = zlib.decompressobj(16 + zlib.MAX_WBITS)
        try:
            piece = member.decompress(data, bytes_max - size + 1)
        except zlib.error:
            raise _unreadable("gzip") from None
        size += len(piece)
        if size > bytes_max:
            raise too_large(bytes_max)
        if not member.eof:
            raise _unreadable("gzip")
        pieces.append(piece)
        data = member.unused_data
    return b"".join(pieces)


def _expand_zstd(data: bytes, bytes_max: int) -> bytes:
    import zstandard

    decoder = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES_MAX)
    try:
        size = zstandard.frame_content_size(data)
        if size > bytes_max:
            raise too_large(bytes_max)
        if size >= 0:
            return decoder.decompress(data, allow_extra_data=False)
        # The frame does not say how large it is. The reader can stop at a limit, but takes a torn frame for a
        # short one; the object notices, and is safe to use once the size is known.
        if len(decoder.stream_reader(data).read(bytes_max + 1)) > bytes_max:
            raise too_large(bytes_max)
        whole = decoder.decompressobj()
        expanded = whole.decompress(data)
    except zstandard.ZstdError:
        raise _unreadable("zstd") from None
    if not whole.eof or whole.unused_data:
        raise _unreadable("zstd")
    return expanded


def _unreadable(coding: str) -> Refused:
    return Refused(400, "BadRequestException", f"The body is not valid {coding}, as Content-Encoding says.")
