"""Where services get parsed documents from.

`Documents` is the plain implementation: it parses each time and keeps nothing. The one that keeps them is in
catalog/fast/document_cache.py.
"""

from __future__ import annotations

from typing import Any

import orjson

from catalog.models import CatalogEntry

Key = tuple[str, str]  # the uuid, and one version of it


def document_key(entry: CatalogEntry) -> Key:
    """The version is part of it: a file that others wrote can change before it is registered again."""
    return (entry.uuid, f"{entry.version} {entry.metadata_location}")


class Documents:
    """Keeps nothing."""

    def text(self, key: Key) -> bytes | None:
        """The text of a document, if it is kept."""
        return None

    def put_text(self, key: Key, text: bytes) -> None:
        """Keep the text of a document."""

    def parsed(self, key: Key, text: bytes) -> dict[str, Any]:
        """The document as dicts. They may be shared: the caller must not change them."""
        return orjson.loads(text)  # type: ignore[no-any-return]

    def put_parsed(self, key: Key, value: dict[str, Any], text: bytes) -> None:
        """Keep a document that is parsed already."""
