"""Errors that are answered before, or instead of, the application: in Iceberg's form like all others."""

from __future__ import annotations

import http
from collections.abc import Sequence
from functools import cache

import orjson

Header = tuple[bytes, bytes]
Whole = tuple[int, Sequence[Header], Sequence[bytes]]  # status, headers, the parts of the body
SMALL_BYTES_MAX = 64 * 1024  # so much is copied into one piece; more is handed to the system as it lies


def error_body(status: int, error_type: str, message: str) -> bytes:
    """Iceberg's error model."""
    return orjson.dumps({"error": {"message": message, "type": error_type, "code": status}})


def raw_answer(status: int, error_type: str, message: str) -> bytes:
    """A whole HTTP answer, for requests that never reach the application. The connection ends with it."""
    body = error_body(status, error_type, message)
    head = (
        f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}\r\n"
        "content-type: application/json\r\n"
        f"content-length: {len(body)}\r\n"
        "connection: close\r\n\r\n"
    )
    return head.encode("ascii") + body


def wire_answer(answer: Whole, headers: Sequence[Header]) -> list[bytes]:
    """A whole answer with these further headers, in pieces to be written.

    Names and values go out as they are: what a client chose of them (its request id) has been checked.
    """
    status, own, parts = answer
    lines = [b"%b: %b\r\n" % pair for pair in (*headers, *own)]
    head = b"".join((_status_line(status), *lines, b"\r\n"))
    if sum(map(len, parts)) > SMALL_BYTES_MAX:
        return [head, *parts]
    return [b"".join((head, *parts))]


@cache
def _status_line(status: int) -> bytes:
    return f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}\r\n".encode()
