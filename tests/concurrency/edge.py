"""Requests to the HTTP edge without HTTP: everything between the bytes in and the bytes out."""

from __future__ import annotations

from typing import Any

import orjson

from catalog.api.calls import Answer, Call
from catalog.api.endpoints import Endpoint, Endpoints
from catalog.api.operations import OPERATIONS
from catalog.identity.open import OpenIdentity
from catalog.service.catalog import Catalog


class Edge:
    """The operations of the spec on one catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self._shared = Endpoints(catalog, OpenIdentity(), separator="%1F", threads_max=1)
        self._operations = {operation.id: operation for operation in OPERATIONS}

    def call(
        self, operation_id: str, path: dict[str, str], body: Any = None, *, key: str | None = None
    ) -> Answer:
        operation = self._operations[operation_id]
        headers = {b"idempotency-key": key.encode()} if key else {}
        text = orjson.dumps(body) if body is not None else b""
        call = Call(self._shared.catalog, operation, {"prefix": "main", **path}, b"", headers, text, "\x1f")
        return Endpoint(self._shared, operation, self._shared._handler(operation)).perform(call)


def error(answer: Answer) -> tuple[int, str]:
    """Status and type of a refusal."""
    return answer.status, orjson.loads(answer.body)["error"]["type"] if answer.body else ""
