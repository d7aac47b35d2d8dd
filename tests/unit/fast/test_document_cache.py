"""The cache has the documents that were put into it, and counts shared parts once."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import given

from catalog.fast.reads import DocumentCache
from catalog.models import CatalogEntry, document_key
from tests.unit.fast.test_pieces import histories, short_lists_are_long

__all__ = ["short_lists_are_long"]


@given(histories())
def test_kept_documents_are_those_that_were_encoded(versions: list[dict[str, Any]]) -> None:
    documents = DocumentCache(10_000_000)
    follows = None
    for number, version in enumerate(versions):
        entry = CatalogEntry("table", "db", "t", "uuid", number, "location")
        key = document_key(entry)
        text = documents.encode(key, version, follows)
        assert orjson.loads(bytes(text)) == version
        assert documents.parsed(entry) == version
        follows = key


def test_versions_that_share_their_parts_count_once() -> None:
    snapshots = [{"snapshot-id": number} for number in range(100)]
    text_bytes = len(orjson.dumps({"snapshots": snapshots}))
    documents = DocumentCache(text_bytes * 6)
    documents.put_text(("other", "1"), b"x")
    for number in range(20):
        snapshots = [*snapshots[:-1], {"snapshot-id": 100 + number}]
        documents.encode(("uuid", str(number)), {"snapshots": snapshots}, ("uuid", str(number - 1)))
    assert documents.text(("other", "1")) == b"x"
    assert documents.get(("parsed", ("uuid", "0"))) is not None


def test_a_replaced_version_leaves_the_cache() -> None:
    documents = DocumentCache(10_000_000)
    for number in range(3):
        key, follows = ("uuid", str(number)), ("uuid", str(number - 1))
        documents.put_text(key, documents.encode(key, {"properties": {"n": number}}, follows, follows))
    kept = [
        (form, number)
        for form in ("text", "parsed")
        for number in range(3)
        if documents.get((form, ("uuid", str(number))))
    ]
    assert kept == [("text", 2), ("parsed", 2)]
