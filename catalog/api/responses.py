"""Bodies and headers of successful responses."""

from __future__ import annotations

import hashlib
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


def etag(entry: CatalogEntry, snapshots: str = "all") -> str:
    """It depends on the version of the table and on the parameter `snapshots`."""
    text = f"{entry.uuid}\0{entry.version}\0{entry.metadata_location}\0{snapshots}"
    return f'"{hashlib.blake2b(text.encode(), digest_size=12).hexdigest()}"'


def etag_matches(if_none_match: str, tag: str) -> bool:
    return any(part.strip() in ("*", tag, f"W/{tag}") for part in if_none_match.split(","))


def table_result(entry: CatalogEntry, document: bytes) -> bytes:
    """LoadTableResult and CommitTableResponse. The stored text of the document is not parsed again."""
    return _with_location(entry, document, b',"config":{}}')


def table_response(entry: CatalogEntry, document: bytes | None = None, snapshots: str = "all") -> Response:
    """The table with its whole document, or with `document` if that is given."""
    body = table_result(entry, document if document is not None else _document(entry))
    return Response(body, headers={"ETag": etag(entry, snapshots)}, media_type=JSON)


def unregister_response(entry: CatalogEntry) -> Response:
    return Response(_with_location(entry, _document(entry), b"}"), media_type=JSON)


def view_response(entry: CatalogEntry) -> Response:
    return Response(_with_location(entry, _document(entry), b',"config":{}}'), media_type=JSON)


def _document(entry: CatalogEntry) -> bytes:
    assert entry.document is not None
    return entry.document


def _with_location(entry: CatalogEntry, document: bytes, end: bytes) -> bytes:
    location = orjson.dumps(entry.metadata_location)
    return b"".join((b'{"metadata-location":', location, b',"metadata":', document, end))
