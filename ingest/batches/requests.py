"""What makes or changes the tables of a batch: bodies of create and commit requests of the specification.

They are applied when the batch is leased, and published with it. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ingest.change import TableName

Request = dict[str, Any]

_WRITE_PROPERTIES = {
    "write.merge.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.delete.mode": "merge-on-read",
    "write.merge.isolation-level": "snapshot",
    "write.update.isolation-level": "snapshot",
    "write.delete.isolation-level": "snapshot",
    "write.delete.granularity": "file",
    "write.target-file-size-bytes": str(128 * 2**20),
}
# Each commit writes the whole document, so files that are never deleted grow with the square of time. The
# history can rebuild every version, so time travel needs none of them.
METADATA_PROPERTIES = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
PROPERTIES = {**_WRITE_PROPERTIES, **METADATA_PROPERTIES}
REJECTS_SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": number, "name": name, "type": type_, "required": False}
        for number, (name, type_) in enumerate(
            (
                ("_rejected_at", "timestamptz"),
                ("_reason", "string"),
                ("_code", "string"),
                ("_source", "string"),
                ("_position", "string"),
                ("_original", "binary"),
                ("_dead_letter", "string"),
            ),
            start=1,
        )
    ],
}


def create(table: TableName, body: Mapping[str, Any]) -> Request:
    return {"table": table[-1], "create": body}


def commit(table: TableName, body: Mapping[str, Any]) -> Request:
    return {"table": table[-1], "commit": body}


def missing_properties(table: TableName, metadata: Mapping[str, Any]) -> list[Request]:
    """Give a table that was made without them the properties that bound its metadata files. What its owner
    has set stays.
    """
    known = metadata.get("properties") or {}
    missing = {name: value for name, value in METADATA_PROPERTIES.items() if name not in known}
    if not missing:
        return []
    body = {
        "requirements": [{"type": "assert-table-uuid", "uuid": metadata["table-uuid"]}],
        "updates": [{"action": "set-properties", "updates": missing}],
    }
    return [commit(table, body)]
