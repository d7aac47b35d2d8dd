"""Reads the whole body of a request before the application gets it.

Received bytes are counted, so that neither a wrong Content-Length nor endless chunks can use more memory than
the limit. gzip and zstd are decompressed within the same limit. A body that is too large is refused with 413,
an unknown Content-Encoding with 415, a broken body with 400.
"""

from __future__ import annotations

import asyncio
import zlib

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from calve.http.responses import refuse_unread, send_error

INLINE_EXPAND_BYTES_MAX = 4096  # more compressed input than this is expanded in a thread
ZSTD_WINDOW_BYTES_MAX = 8 * 2**20  # RFC 8878 asks every decoder to support this much
FRAMING = frozenset({b"content-encoding", b"content-length", b"transfer-encoding"})


class Refused(Exception):
    """The request is answered with this status, type and message.

    `unread`: the client may still be sending.
    """

    def __init__(self, status: int, type_: str, message: str, *, unread: bool = False) -> None:
        super().__init__(message)
        self.status, self.type, self.message, self.unread = status, type_, message, unread


class RequestBody:
    def __init__(self, app: ASGIApp, *, bytes_max: int) -> None:
        if bytes_max < 1:
            raise ValueError("bytes_max must be positive")
        self.app = app
        self._bytes_max = bytes_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not has_body(scope):
            await self.app(scope, receive, send)
            return
        try:
            body = await self._read(scope, receive)
        except Refused as refused:
            error = refused.status, refused.type, refused.message
            await (refuse_unread(receive, send, *error) if refused.unread else send_error(send, *error))
            return
        await self.app(scope, _replay(body, receive), send)

    async def _read(self, scope: Scope, receive: Receive) -> bytes:
        headers = dict(scope["headers"])
        length = declared_length(headers, self._bytes_max)
        body = await read(receive, length, self._bytes_max) if length != 0 else b""
        coding = headers.get(b"content-encoding")
        if coding is not None and body:
            body = await self._expanded(body, coding.strip().lower())
            plain = (b"content-length", str(len(body)).encode())
            scope["headers"] = [pair for pair in scope["headers"] if pair[0] not in FRAMING] + [plain]
        return body

    async def _expanded(self, body: bytes, coding: bytes) -> bytes:
        if coding == b"identity":
            return body
        if coding not in (b"gzip", b"x-gzip", b"zstd"):
            message = "Content-Encoding must be gzip, zstd or absent."
            raise Refused(415, "UnsupportedMediaTypeException", message)
        if len(body) <= INLINE_EXPAND_BYTES_MAX:
            return expand(body, coding, self._bytes_max)
        return await asyncio.to_thread(expand, body, coding, self._bytes_max)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return the body once, then what the connection receives."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def has_body(scope: Scope) -> bool:
    return any(name in (b"content-length", b"transfer-encoding") for name, _ in scope["headers"])


def declared_length(headers: dict[bytes, bytes], bytes_max: int) -> int | None:
    """Content-Length, or None. A body that would be too large is refused before any of it is read."""
    text = headers.get(b"content-length")
    if text is None:
        return None
    if b"transfer-encoding" in headers:  # a proxy in front may have used the other header
        message = "The request has both Content-Length and Transfer-Encoding."
        raise Refused(400, "BadRequestException", message)
    if not text.isdigit():
        raise Refused(400, "BadRequestException", "Content-Length is not a number.")
    if len(text) > 18 or int(text) > bytes_max:
        raise _too_large(bytes_max, unread=True)
    return int(text)


async def read(receive: Receive, length: int | None, bytes_max: int) -> bytes:
    """The whole body, of exactly `length` bytes if that is known."""
    pieces: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientDisconnect
        piece = message.get("body", b"")
        size += len(piece)
        if size > bytes_max:
            raise _too_large(bytes_max, unread=True)
        pieces.append(piece)
        more = message.get("more_body", False)
    if length is not None and size != length:
        # A server that loses a body must not treat the request as one without a body.
        text = f"The body has {size} bytes, but Content-Length says {length}."
        raise Refused(400, "BadRequestException", text)
    return b"".join(pieces)


def expand(data: bytes, coding: bytes, bytes_max: int) -> bytes:
    """The decompressed body. Memory stays within the limit for any input."""
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
            raise _too_large(bytes_max)
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
            raise _too_large(bytes_max)
        if size >= 0:
            return decoder.decompress(data, allow_extra_data=False)
        # The frame does not contain its size. The stream reader can stop at a limit, but does not report a
        # truncated frame; the decompressor does, and is safe to use once the size is known.
        if len(decoder.stream_reader(data).read(bytes_max + 1)) > bytes_max:
            raise _too_large(bytes_max)
        whole = decoder.decompressobj()
        expanded = whole.decompress(data)
    except zstandard.ZstdError:
        raise _unreadable("zstd") from None
    if not whole.eof or whole.unused_data:
        raise _unreadable("zstd")
    return expanded


def _too_large(bytes_max: int, *, unread: bool = False) -> Refused:
    message = f"The body is larger than {bytes_max} bytes (setting body_bytes_max)."
    return Refused(413, "PayloadTooLargeException", message, unread=unread)


def _unreadable(coding: str) -> Refused:
    return Refused(400, "BadRequestException", f"The body is not valid {coding}, as Content-Encoding says.")
