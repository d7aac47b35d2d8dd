"""Errors on the wire: the one place that turns an exception into a status and Iceberg's error body."""

from __future__ import annotations

import orjson

from catalog.api.calls import JSON, Answer
from catalog.errors import CatalogError, NotAuthorized, Unavailable


def error_body(message: str, type_: str, code: int) -> bytes:
    return orjson.dumps({"error": {"message": message, "type": type_, "code": code}})


def error_answer(error: CatalogError) -> Answer:
    headers = [JSON]
    if isinstance(error, Unavailable):
        headers.append((b"retry-after", str(error.retry_after_s).encode()))
    if isinstance(error, NotAuthorized):
        headers.append((b"www-authenticate", b"Bearer"))
    return Answer(error.status, error_body(error.message, error.type, error.status), headers)
