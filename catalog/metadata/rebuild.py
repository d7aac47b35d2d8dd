"""Rebuild a past version of a document from a later one, when its metadata file is missing.

Metadata is mostly additive: a later document still contains the schemas, specs and snapshots of an earlier
one. The history stores for each version which of them were current (`document.summarize`). For a table whose
old metadata files are deleted it stores the properties too; otherwise a rebuilt version has the properties of
the later document. Format version and location are always those of the later document.
"""

from __future__ import annotations

from typing import Any

import orjson

from catalog.errors import FileNotFound
from catalog.metadata.document import CURRENT_KEYS, set_current_snapshot_id


def rebuild(later: bytes, summary: dict[str, Any]) -> bytes:
    """The rebuilt document. Raises FileNotFound if its snapshot has expired."""
    metadata: dict[str, Any] = orjson.loads(later)
    snapshot_id = summary.get("current-snapshot-id", -1)
    snapshots = {snapshot["snapshot-id"]: snapshot for snapshot in metadata.get("snapshots") or []}
    if snapshot_id not in (None, -1) and snapshot_id not in snapshots:
        raise FileNotFound(
            f"Snapshot {snapshot_id} has expired and its metadata file is gone: "
            "this moment can no longer be read"
        )
    schema_id = summary.get("current-schema-id")
    if schema_id is not None and all(s.get("schema-id") != schema_id for s in metadata.get("schemas") or []):
        raise FileNotFound(
            f"Schema {schema_id} has been removed and its metadata file is gone: "
            "this moment can no longer be read"
        )
    updated_ms = summary.get("last-updated-ms", metadata["last-updated-ms"])
    metadata |= {key: summary[key] for key in (*CURRENT_KEYS, "properties") if key in summary}
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
    refs = summary.get("refs") or ({"main": main} if snapshot_id not in (None, -1) else {})
    metadata["refs"] = {name: ref for name, ref in refs.items() if ref["snapshot-id"] in known}
    for key in ("statistics", "partition-statistics"):
        if key in metadata:
            metadata[key] = [entry for entry in metadata[key] if entry["snapshot-id"] in known]
    return orjson.dumps(metadata)
