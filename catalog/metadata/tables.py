"""New tables, and the short form of a table that contains only the snapshots of references."""

from __future__ import annotations

from typing import Any

from catalog.errors import Invalid
from catalog.metadata import partitioning
from catalog.metadata.commit import check_layout, legacy_fields
from catalog.metadata.document import UNSORTED_ORDER_ID, Draft, Metadata, highest_field_id
from catalog.metadata.partitioning import renumbered
from catalog.metadata.schemas import fresh_ids, index_schema, tidy_schema
from catalog.metadata.table_updates import new_table_properties, read_format_version, without_trailing_slash
from catalog.metadata.validation import JsonObject, check_json, mapping, string_map

_FIRST_SORT_ORDER_ID = 1


def new_table(request: JsonObject, *, location: str, table_uuid: str, now_ms: int) -> Metadata:
    """The first document of a table, from the body of a create request (its name and location are not read).

    All column ids are assigned anew: the top level 1..n, then nested fields. Spec and sort order use the new
    ids.
    """
    check_json(request, "the request")
    given = string_map(request, "properties") if request.get("properties") is not None else {}
    version = read_format_version(given)
    schema = mapping(request, "schema")
    fresh, ids, last_column_id = fresh_ids(tidy_schema(schema, index_schema(schema, version)))
    draft = Draft.empty(version, now_ms)
    document = draft.document
    fields = _spec_fields(request.get("partition-spec"), ids, version)
    order = _sort_order(request.get("write-order"), ids, version)
    document |= {
        "table-uuid": table_uuid,
        "location": without_trailing_slash(location),
        "last-column-id": last_column_id,
        "schemas": [fresh | {"schema-id": 0}],
        "current-schema-id": 0,
        "partition-specs": [(request.get("partition-spec") or {}) | {"spec-id": 0, "fields": fields}],
        "default-spec-id": 0,
        "last-partition-id": highest_field_id(fields),
        "sort-orders": [order],
        "default-sort-order-id": order["order-id"],
        "properties": new_table_properties(given, version),
    }
    check_layout(draft)
    if version == 1:
        document |= legacy_fields(document)
    return document


def _spec_fields(spec: Any, ids: dict[int, int], version: int) -> list[JsonObject]:
    if spec is None:
        return []
    at = "partition-spec"
    if not isinstance(spec, dict):
        raise Invalid(f"{at} must be an object")
    fields = partitioning.read_partition_fields(spec, version, at)
    return partitioning.sequential(
        [renumbered(field, ids, f"{at}.fields[{i}]") for i, field in enumerate(fields)]
    )


def _sort_order(order: Any, ids: dict[int, int], version: int) -> JsonObject:
    if order is None:
        return {"order-id": UNSORTED_ORDER_ID, "fields": []}
    at = "write-order"
    if not isinstance(order, dict):
        raise Invalid(f"{at} must be an object")
    fields = partitioning.read_sort_fields(order, version, at)
    renumbered_fields = [renumbered(field, ids, f"{at}.fields[{i}]") for i, field in enumerate(fields)]
    return order | {
        "order-id": _FIRST_SORT_ORDER_ID if fields else UNSORTED_ORDER_ID,
        "fields": renumbered_fields,
    }


def creation_updates(metadata: Metadata) -> list[JsonObject]:
    """The updates of a commit that creates a table with this first document."""
    properties = metadata.get("properties") or {}
    return [
        {"action": "assign-uuid", "uuid": metadata["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": metadata["format-version"]},
        {"action": "add-schema", "schema": metadata["schemas"][0]},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": metadata["partition-specs"][0]},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": metadata["sort-orders"][0]},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": metadata["location"]},
        *([{"action": "set-properties", "updates": properties}] if properties else []),
    ]


def with_refs_only(metadata: Metadata) -> Metadata:
    """The document without snapshots that no reference points to, and without their statistics.

    Everything else stays. Returns the document itself if no snapshot is removed.
    """
    shown_ids = {ref["snapshot-id"] for ref in (metadata.get("refs") or {}).values()}
    snapshots = metadata.get("snapshots") or []
    hidden = {snapshot["snapshot-id"] for snapshot in snapshots} - shown_ids
    if not hidden:
        return metadata
    return metadata | {
        key: [entry for entry in metadata.get(key) or [] if entry["snapshot-id"] not in hidden]
        for key in ("snapshots", "statistics", "partition-statistics")
        if key in metadata
    }
