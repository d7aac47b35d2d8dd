"""Every document that the engine produces is sound, can be written, and is read by PyIceberg."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from pyiceberg.table.metadata import TableMetadataUtil

from catalog.metadata.document import Metadata
from catalog.metadata.invariants import violations
from tests.harness.documents import produced_documents, write_documents

DOCUMENTS = dict(produced_documents())
# PyIceberg 0.12 cannot read a coordinate system, nor the default of a nanosecond time.
BEYOND_PYICEBERG = {"v3-every-type", "v3-defaults"}
# A key that crashes DuckDB or makes it fail when it is missing.
DUCKDB_NEEDS = (
    *("table-uuid", "location", "schemas", "current-schema-id", "partition-specs", "default-spec-id"),
    *("sort-orders", "default-sort-order-id", "snapshots", "properties"),
)


def test_there_are_enough_of_them() -> None:
    assert len(DOCUMENTS) >= 100
    assert {metadata["format-version"] for metadata in DOCUMENTS.values()} == {1, 2, 3}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_is_sound_and_complete(name: str) -> None:
    metadata = DOCUMENTS[name]
    assert violations(metadata) == []
    assert orjson.loads(orjson.dumps(metadata)) == metadata
    for key in DUCKDB_NEEDS:
        assert metadata.get(key) is not None
    for key in ("schemas", "partition-specs", "sort-orders"):
        assert metadata[key]
    if metadata["snapshots"] and "main" in metadata["refs"]:
        assert metadata["current-snapshot-id"] == metadata["refs"]["main"]["snapshot-id"]
    assert ("last-sequence-number" in metadata) == (metadata["format-version"] > 1)


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if name not in BEYOND_PYICEBERG])
def test_pyiceberg_reads_it(name: str) -> None:
    metadata = DOCUMENTS[name]
    read = TableMetadataUtil.parse_obj(orjson.loads(orjson.dumps(metadata)))
    assert str(read.table_uuid) == metadata["table-uuid"]
    assert [schema.schema_id for schema in read.schemas] == _ids(metadata, "schemas", "schema-id")
    assert [entry.snapshot_id for entry in read.snapshots] == _ids(metadata, "snapshots", "snapshot-id")
    assert read.current_snapshot_id == (metadata["refs"].get("main") or {}).get("snapshot-id")
    assert read.schema().highest_field_id <= read.last_column_id


def _ids(metadata: Metadata, key: str, id_key: str) -> list[Any]:
    return [entry[id_key] for entry in metadata[key]]


def test_they_are_the_same_each_time_and_can_be_written(tmp_path: Path) -> None:
    paths = write_documents(tmp_path)
    assert [path.stem for path in paths] == list(DOCUMENTS)
    for path in paths:
        assert orjson.loads(path.read_bytes()) == DOCUMENTS[path.stem]
