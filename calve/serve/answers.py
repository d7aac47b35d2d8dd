"""Errors that are answered before, or instead of, the application: in Iceberg's form like all others."""

from __future__ import annotations

import http

import orjson


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
