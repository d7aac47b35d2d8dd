"""The end of `apply`: what must hold of the whole document, the two clocks, and the metadata log."""

from __future__ import annotations

from catalog.errors import Invalid
from catalog.metadata import partitioning, sorting
from catalog.metadata.document import Metadata, with_id
from catalog.metadata.draft import Draft
from catalog.metadata.limits import CLOCK_SKEW_MS_MAX
from catalog.metadata.properties import previous_versions_max
from catalog.metadata.snapshot_log import finish_snapshot_log


def finish(draft: Draft, metadata_location: str | None) -> Metadata:
    """The finished document, or the base itself if nothing changed."""
    document = draft.document
    if draft.base is None:
        _check_complete(document)
    if draft.layout_changed:
        check_layout(draft)
    finish_snapshot_log(draft)
    # Parts that were not touched are the same objects, so this compares little.
    if draft.base is not None and document == draft.base:
        return draft.base
    if document["format-version"] == 1:
        document |= legacy_fields(document)
    if draft.base is not None and metadata_location is not None:
        entry = {"timestamp-ms": draft.base["last-updated-ms"], "metadata-file": metadata_location}
        log = [*(document.get("metadata-log") or ()), entry]
        document["metadata-log"] = log[-previous_versions_max(document.get("properties") or {}) :]
    document["last-updated-ms"] = _last_updated_ms(draft)
    return document


def _check_complete(document: Metadata) -> None:
    """Of a table made from nothing. The first schema, spec and order count unless another was set."""
    for key, what in (
        ("table-uuid", "assign-uuid"),
        ("location", "set-location"),
        ("schemas", "add-schema"),
        ("partition-specs", "add-spec"),
        ("sort-orders", "add-sort-order"),
    ):
        if not document[key]:
            raise Invalid(f"Cannot create the table: {what} is missing")
    for key, entries, id_key in (
        ("current-schema-id", "schemas", "schema-id"),
        ("default-spec-id", "partition-specs", "spec-id"),
        ("default-sort-order-id", "sort-orders", "order-id"),
    ):
        if document[key] is None:
            document[key] = document[entries][0][id_key]


def check_layout(draft: Draft) -> None:
    """The default spec and sort order fit the current schema; no spec's names clash with its columns."""
    document = draft.document
    index = draft.current_schema_index()
    for spec in document["partition-specs"]:
        partitioning.check_names(spec["fields"], index)
    spec = with_id(document["partition-specs"], "spec-id", document["default-spec-id"])
    order = with_id(document["sort-orders"], "order-id", document["default-sort-order-id"])
    if spec is None or order is None:
        raise Invalid("the default partition spec or sort order does not exist")
    partitioning.bind(spec["fields"], index)
    sorting.bind(order["fields"], index)


def legacy_fields(document: Metadata) -> Metadata:
    """What only v1 readers look at: the current schema and the fields of the default spec."""
    schema = with_id(document["schemas"], "schema-id", document["current-schema-id"])
    spec = with_id(document["partition-specs"], "spec-id", document["default-spec-id"])
    return {"schema": schema, "partition-spec": spec["fields"] if spec is not None else []}


def _last_updated_ms(draft: Draft) -> int:
    """The time of the snapshot that was added, else now; never later.

    DuckDB does not read a table that was updated after its transaction began, by its own clock. So the
    writer's clock counts where there is one. Java refuses a document that is older than its own logs by more
    than a minute, which is the bound from below.
    """
    added = [snapshot["timestamp-ms"] for snapshot in draft.snapshots_added.values()]
    times: list[int] = [added[-1] if added else draft.now_ms]
    for key in ("snapshot-log", "metadata-log"):
        log = draft.document.get(key)
        if log:
            times.append(log[-1]["timestamp-ms"] - CLOCK_SKEW_MS_MAX)
    return max(times)
