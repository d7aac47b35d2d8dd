"""Facts about a table that commands print, from its metadata. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any


def current_summary(metadata: dict[str, Any]) -> dict[str, str]:
    """The summary of the current snapshot; empty for a table without one."""
    current = metadata.get("current-snapshot-id")
    for snapshot in metadata.get("snapshots") or ():
        if snapshot["snapshot-id"] == current:
            found: dict[str, str] = snapshot.get("summary", {})
            return found
    return {}


def rows_without_deletes(summary: Mapping[str, str]) -> int | None:
    """The rows that a reader finds; None if that cannot be known without reading.

    A compaction leaves deletes of files that are gone, so records minus deletes may be far too low.
    """
    deletes = (int(summary.get(f"total-{kind}-deletes", 0)) for kind in ("position", "equality"))
    return None if any(deletes) else int(summary.get("total-records", 0))


def files_bytes(metadata: dict[str, Any]) -> int:
    return int(current_summary(metadata).get("total-files-size", 0))


def time_text(ms: int | None) -> str:
    """2026-11-15 01:02:03 UTC."""
    return "-" if ms is None else datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def current_schema(metadata: dict[str, Any]) -> dict[str, Any]:
    wanted = metadata["current-schema-id"]
    found: dict[str, Any] = next(one for one in metadata["schemas"] if one["schema-id"] == wanted)
    return found


def columns(metadata: dict[str, Any]) -> list[dict[str, Any]]:
    """Name, type, whether it may be null, whether it is part of the key, and the comment."""
    schema = current_schema(metadata)
    key = set(schema.get("identifier-field-ids", ()))
    return [
        {
            "column": field["name"],
            "type": type_text(field["type"]),
            "null": "no" if field["required"] else "yes",
            "key": "yes" if field["id"] in key else "",
            "comment": field.get("doc", ""),
        }
        for field in schema["fields"]
    ]


def type_text(type_: Any) -> str:
    """A type of Iceberg in SQL's form: list<long>, struct<a: long>."""
    if isinstance(type_, str):
        return type_
    if type_["type"] == "list":
        return f"list<{type_text(type_['element'])}>"
    if type_["type"] == "map":
        return f"map<{type_text(type_['key'])}, {type_text(type_['value'])}>"
    inner = ", ".join(f"{field['name']}: {type_text(field['type'])}" for field in type_["fields"])
    return f"struct<{inner}>"


def partitioning(metadata: dict[str, Any]) -> list[str]:
    """`day(at)`, `bucket[16](id)`."""
    wanted = metadata["default-spec-id"]
    names = {field["id"]: field["name"] for field in current_schema(metadata)["fields"]}
    spec = next(one for one in metadata["partition-specs"] if one["spec-id"] == wanted)
    return [
        names.get(field["source-id"], field["name"])
        if field["transform"] == "identity"
        else f"{field['transform']}({names.get(field['source-id'], field['name'])})"
        for field in spec["fields"]
    ]


def description(name: str, metadata: dict[str, Any], rows: int) -> dict[str, Any]:
    """Everything that `calve describe` shows."""
    return {
        "table": name,
        "columns": columns(metadata),
        "partitioning": partitioning(metadata),
        "rows": rows,
        "bytes": files_bytes(metadata),
        "snapshots": len(metadata.get("snapshots") or ()),
        "last commit": time_text(metadata.get("last-updated-ms")),
        "format version": metadata["format-version"],
        "location": metadata["location"],
        "properties": metadata.get("properties", {}),
    }
