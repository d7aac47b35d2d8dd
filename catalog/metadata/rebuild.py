"""A past version of a document, made again from a later one, for when the metadata file of the past is gone.

Metadata is mostly additive: a later document still holds the schemas, specs and snapshots of an earlier one.
What was current then is in the note that the history keeps of each version (`note`). A table that has its old
metadata files deleted needs this sooner or later, so the note of its versions holds their properties too; a
version that lost its file in another way is rebuilt with the properties of the later document. Format version
and location are always those of the later one.
"""

from __future__ import annotations

from typing import Any

import orjson

from catalog.errors import FileNotFound
from catalog.metadata.draft import set_current_snapshot_id
from catalog.metadata.table_updates import deletes_old_metadata

CURRENT = (
    "current-snapshot-id",
    "current-schema-id",
    "default-spec-id",
    "default-sort-order-id",
    "last-updated-ms",
)
NOTED = (*CURRENT, "refs", "properties")


def summarize(metadata: dict[str, Any]) -> dict[str, Any]:
    """What the history keeps of a version, so that it can be rebuilt: which of everything was current."""
    kept = {key: metadata[key] for key in CURRENT if metadata.get(key) is not None}
    properties = metadata.get("properties") or {}
    if deletes_old_metadata(properties):
        kept["properties"] = properties
    refs = metadata.get("refs") or {}
    if len(refs) > 1 or (refs and "main" not in refs):
        kept["refs"] = refs
    return kept


def update_summary(detail: dict[str, Any], metadata: dict[str, Any]) -> dict[str, Any]:
    """What the history keeps, with the note of this version in place of that of an earlier one."""
    return {key: value for key, value in detail.items() if key not in NOTED} | summarize(metadata)


def rebuild(later: bytes, noted: dict[str, Any]) -> bytes:
    """The document as it was. FileNotFound if its snapshot has expired since."""
    metadata: dict[str, Any] = orjson.loads(later)
    snapshot_id = noted.get("current-snapshot-id", -1)
    snapshots = {snapshot["snapshot-id"]: snapshot for snapshot in metadata.get("snapshots") or []}
    if snapshot_id not in (None, -1) and snapshot_id not in snapshots:
        raise FileNotFound(
            f"Snapshot {snapshot_id} has expired and its metadata file is gone: "
            "this moment can no longer be read"
        )
    schema_id = noted.get("current-schema-id")
    if schema_id is not None and all(s.get("schema-id") != schema_id for s in metadata.get("schemas") or []):
        raise FileNotFound(
            f"Schema {schema_id} has been removed and its metadata file is gone: "
            "this moment can no longer be read"
        )
    updated_ms = noted.get("last-updated-ms", metadata["last-updated-ms"])
    metadata |= {key: noted[key] for key in (*CURRENT, "properties") if key in noted}
    set_current_snapshot_id(metadata, None if snapshot_id in (None, -1) else snapshot_id)
    metadata["snapshots"] = [s for s in snapshots.values() if s["timestamp-ms"] <= updated_ms]
    known = {snapshot["snapshot-id"] for snapshot in metadata["snapshots"]}
    metadata["snapshot-log"] = [
        entry
        for entry in metadata.get("snapshot-log") or []
        if entry["timestamp-ms"] <= updated_ms and entry["snapshot-id"] in known
    ]
    metadata["metadata-log"] = [
        entry for entry in metadata.get("metadata-log") or [] if entry["timestamp-ms"] < updated_ms
    ]
    main = {"snapshot-id": snapshot_id, "type": "branch"}
    refs = noted.get("refs") or ({"main": main} if snapshot_id not in (None, -1) else {})
    metadata["refs"] = {name: ref for name, ref in refs.items() if ref["snapshot-id"] in known}
    for key in ("statistics", "partition-statistics"):
        if key in metadata:
            metadata[key] = [entry for entry in metadata[key] if entry["snapshot-id"] in known]
    return orjson.dumps(metadata)
