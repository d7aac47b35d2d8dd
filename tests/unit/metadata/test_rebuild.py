"""Documents of the past: rebuilt from a later one, and squashed where several versions become one."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from catalog.errors import FileNotFound
from catalog.metadata.commit import apply
from catalog.metadata.document import summarize
from catalog.metadata.rebuild import rebuild
from catalog.metadata.snapshots import collapse_logs
from catalog.metadata.tables import new_table
from tests.harness.rest import SCHEMA, append_body

Metadata = dict[str, Any]


def table() -> Metadata:
    request = {"name": "t", "schema": SCHEMA}
    return new_table(
        request, location="file:///wh/t", table_uuid="f3d1a4a4-0b8e-4c2b-9d55-0e8d6c1f7b11", now_ms=1_000
    )


def appended(metadata: Metadata, snapshot_id: int, now_ms: int) -> Metadata:
    body = append_body(metadata, snapshot_id)
    body["updates"][0]["snapshot"]["timestamp-ms"] = now_ms
    location = f"file:///wh/t/metadata/{snapshot_id}.json"
    return apply(metadata, body["requirements"], body["updates"], now_ms=now_ms, metadata_location=location)


def test_a_rebuilt_version_is_the_version() -> None:
    versions = [table()]
    for number in range(1, 6):
        versions.append(appended(versions[-1], number, 1_000 + number * 100))
    for version in versions:
        rebuilt = orjson.loads(rebuild(orjson.dumps(versions[-1]), summarize(version)))
        for key in ("snapshots", "snapshot-log", "refs", "current-snapshot-id", "schemas", "last-updated-ms"):
            assert rebuilt[key] == version[key], key


def test_a_version_whose_snapshot_has_expired_says_so() -> None:
    first = appended(table(), 1, 1_100)
    later = appended(first, 2, 1_200)
    gone = apply(later, [], [{"action": "remove-snapshots", "snapshot-ids": [1]}], now_ms=1_300)
    with pytest.raises(FileNotFound, match="Snapshot 1 has expired"):
        rebuild(orjson.dumps(gone), summarize(first))


def test_squashed_logs_hold_the_published_versions_and_the_last() -> None:
    published = appended(table(), 1, 1_100)
    inside = appended(appended(published, 2, 1_200), 3, 1_300)
    squashed = collapse_logs(inside, published, "file:///wh/t/metadata/published.json")
    assert [entry["snapshot-id"] for entry in squashed["snapshot-log"]] == [1, 3]
    assert squashed["metadata-log"][-1] == {
        "timestamp-ms": 1_100,
        "metadata-file": "file:///wh/t/metadata/published.json",
    }
    assert squashed["snapshots"] == inside["snapshots"]
    alone = collapse_logs(inside, None, None)
    assert [entry["snapshot-id"] for entry in alone["snapshot-log"]] == [3]
    assert alone["metadata-log"] == []
