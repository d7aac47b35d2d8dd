"""Bodies and headers of successful responses."""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import Response

from catalog.models import CatalogEntry
from catalog.names import Namespace

JSON = "application/json"


def json_response(value: Any) -> Response:
    return Response(orjson.dumps(value), media_type=JSON)


def identifiers_response(namespace: Namespace, names: list[str], next_token: str | None) -> Response:
    levels = list(namespace.levels)
    identifiers = [{"namespace": levels, "name": name} for name in names]
    return json_response({"identifiers": identifiers, "next-page-token": next_token})


def no_content() -> Response:
    return Response(status_code=204)


def view_response(entry: CatalogEntry) -> Response:
    return Response(with_location(entry, b',"config":{}}'), media_type=JSON)


def with_location(entry: CatalogEntry, end: bytes) -> bytes:
    """The metadata location and the document of a table or view, whose stored text is not parsed again."""
    assert entry.document is not None, "the entry of a response carries its document"
    location = orjson.dumps(entry.metadata_location)
    return b"".join((b'{"metadata-location":', location, b',"metadata":', entry.document, end))
