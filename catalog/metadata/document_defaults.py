"""Fill in what old metadata documents leave out.

v1 allowed writers to leave out much that clients now need. `with_defaults` derives it from what is there, as
every reader does for itself, and returns the document itself if nothing is missing. Use it on a metadata file
that is registered; `apply` uses it on its base.
"""

from __future__ import annotations

from catalog.metadata.draft import (
    MAIN,
    PARTITION_FIELD_ID_START,
    UNSORTED_ORDER_ID,
    Metadata,
    current_snapshot_id,
    set_current_snapshot_id,
)
from catalog.metadata.partitioning import highest_field_id

_LISTS = ("snapshots", "statistics", "partition-statistics", "snapshot-log", "metadata-log")
_KEYS = (
    "table-uuid",
    "schemas",
    "current-schema-id",
    "partition-specs",
    "default-spec-id",
    "last-partition-id",
    "sort-orders",
    "default-sort-order-id",
    "properties",
    "refs",
    *_LISTS,
)


def with_defaults(metadata: Metadata, *, table_uuid: str | None = None) -> Metadata:
    """`table_uuid` is given to a table that has none (old v1 tables)."""
    if all(metadata.get(key) is not None for key in _KEYS):
        return metadata
    document = {key: value for key, value in metadata.items() if value is not None or key not in _KEYS}
    if table_uuid is not None:
        document.setdefault("table-uuid", table_uuid)
    if document.get("format-version") == 1:
        _complete_schemas(document)
        _complete_specs(document)
        _complete_orders(document)
    document.setdefault("properties", {})
    for key in _LISTS:
        document.setdefault(key, [])
    _complete_refs(document)
    return document if document != metadata else metadata


def _complete_schemas(document: Metadata) -> None:
    if "schemas" not in document and isinstance(document.get("schema"), dict):
        schema = {"type": "struct", "schema-id": 0} | document["schema"]
        document["schemas"] = [schema]
        document["current-schema-id"] = schema["schema-id"]


def _complete_specs(document: Metadata) -> None:
    if "partition-specs" not in document and "partition-spec" in document:
        document["partition-specs"] = [{"spec-id": 0, "fields": document["partition-spec"]}]
        document["default-spec-id"] = 0
    if not _are_spec_shaped(document.get("partition-specs")):
        return
    specs = [
        spec
        | {
            "fields": [
                {"field-id": PARTITION_FIELD_ID_START + i} | field for i, field in enumerate(spec["fields"])
            ]
        }
        for spec in document["partition-specs"]
    ]
    if specs != document["partition-specs"]:
        document["partition-specs"] = specs
    fields = [field for spec in specs for field in spec["fields"]]
    if all(isinstance(field["field-id"], int) for field in fields):
        document.setdefault("last-partition-id", highest_field_id(fields))


def _are_spec_shaped(specs: object) -> bool:
    """Malformed documents are left as they are: what is wrong with them is for `invariants` to say."""
    return isinstance(specs, list) and all(
        isinstance(spec, dict)
        and isinstance(spec.get("fields"), list)
        and all(isinstance(field, dict) for field in spec["fields"])
        for spec in specs
    )


def _complete_orders(document: Metadata) -> None:
    document.setdefault("sort-orders", [{"order-id": UNSORTED_ORDER_ID, "fields": []}])
    document.setdefault("default-sort-order-id", UNSORTED_ORDER_ID)


def _complete_refs(document: Metadata) -> None:
    current = current_snapshot_id(document)
    if current is None and isinstance(document.get("format-version"), int):
        set_current_snapshot_id(document, None)
    if "refs" not in document:
        document["refs"] = {} if current is None else {MAIN: {"snapshot-id": current, "type": "branch"}}
