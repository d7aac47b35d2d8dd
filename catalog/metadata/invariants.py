"""What must be true of every stored document, whoever wrote it.

`violations(metadata)` lists in plain sentences what is not ([] when sound); it never raises, whatever it is
given. `apply` and `new_table` never make a document that has any. `view_violations` is the same for views.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from catalog.metadata import partitioning, sorting
from catalog.metadata.document import (
    MAIN,
    PARTITION_FIELD_ID_START,
    Metadata,
    current_snapshot_id,
    with_id,
)
from catalog.metadata.document_shapes import malformations, refusal
from catalog.metadata.limits import CLOCK_SKEW_MS_MAX
from catalog.metadata.schema_equality import same_schema
from catalog.metadata.schemas import SchemaIndex, index_schema
from catalog.metadata.view_invariants import view_violations

__all__ = ["view_violations", "violations"]


def violations(metadata: object) -> list[str]:
    if not isinstance(metadata, dict):
        return ["the document is not an object"]
    # What follows relies on the shapes, so a document with a wrong one is not looked at further.
    malformed = malformations(metadata)
    if malformed:
        return malformed
    checks = (_schemas, _specs, _sort_orders, _snapshots, _refs, _snapshot_log, _clocks, _statistics, _legacy)
    return [violation for check in checks for violation in check(metadata)]


def _unique(metadata: Metadata, key: str, id_key: str) -> Iterator[str]:
    ids = [entry[id_key] for entry in metadata.get(key) or ()]
    if len(set(ids)) < len(ids):
        yield f"{key} holds a {id_key} more than once"


def _schemas(metadata: Metadata) -> Iterator[str]:
    yield from _unique(metadata, "schemas", "schema-id")
    if with_id(metadata["schemas"], "schema-id", metadata["current-schema-id"]) is None:
        yield f"current-schema-id {metadata['current-schema-id']} is not in schemas"
    highest = max((index_schema(schema).highest_id for schema in metadata["schemas"]), default=0)
    if highest > metadata["last-column-id"]:
        yield f"last-column-id {metadata['last-column-id']} is below field id {highest}"


def _current_index(metadata: Metadata) -> SchemaIndex | None:
    schema = with_id(metadata["schemas"], "schema-id", metadata["current-schema-id"])
    return None if schema is None else index_schema(schema)


def _specs(metadata: Metadata) -> Iterator[str]:
    yield from _unique(metadata, "partition-specs", "spec-id")
    specs = metadata["partition-specs"]
    highest = partitioning.highest_field_id(field for spec in specs for field in spec["fields"])
    if highest > max(metadata["last-partition-id"], PARTITION_FIELD_ID_START - 1):
        yield f"last-partition-id {metadata['last-partition-id']} is below partition field id {highest}"
    default = with_id(specs, "spec-id", metadata["default-spec-id"])
    index = _current_index(metadata)
    if default is None:
        yield f"default-spec-id {metadata['default-spec-id']} is not in partition-specs"
    elif index is not None:
        yield from refusal(partitioning.bind, default["fields"], index)
        for spec in specs:
            yield from refusal(partitioning.check_names, spec["fields"], index)


def _sort_orders(metadata: Metadata) -> Iterator[str]:
    yield from _unique(metadata, "sort-orders", "order-id")
    default = with_id(metadata["sort-orders"], "order-id", metadata["default-sort-order-id"])
    index = _current_index(metadata)
    if default is None:
        yield f"default-sort-order-id {metadata['default-sort-order-id']} is not in sort-orders"
    elif index is not None:
        yield from refusal(sorting.bind, default["fields"], index)


def _snapshots(metadata: Metadata) -> Iterator[str]:
    yield from _unique(metadata, "snapshots", "snapshot-id")
    snapshots = metadata.get("snapshots") or []
    last = metadata.get("last-sequence-number") or 0
    next_row_id = metadata.get("next-row-id")
    for snapshot in snapshots:
        id_ = snapshot["snapshot-id"]
        if (snapshot.get("sequence-number") or 0) > last:
            yield f"snapshot {id_} has a sequence number above last-sequence-number {last}"
        rows_end = (snapshot.get("first-row-id") or 0) + (snapshot.get("added-rows") or 0)
        if next_row_id is not None and snapshot.get("first-row-id") is not None and rows_end > next_row_id:
            yield f"snapshot {id_} has row ids above next-row-id {next_row_id}"


def _refs(metadata: Metadata) -> Iterator[str]:
    ids = {snapshot["snapshot-id"] for snapshot in metadata.get("snapshots") or ()}
    refs = metadata.get("refs")
    current = current_snapshot_id(metadata)
    for name, ref in (refs or {}).items():
        if ref["snapshot-id"] not in ids:
            yield f"{ref['type']} {name} points to snapshot {ref['snapshot-id']}, which does not exist"
    if current is not None and current not in ids:
        yield f"current-snapshot-id {current} does not exist"
    main = (refs or {}).get(MAIN)
    if main is not None and main["type"] != "branch":
        yield f"{MAIN} is not a branch"
    if refs is not None and current != (None if main is None else main["snapshot-id"]):
        yield f"current-snapshot-id {current} is not where {MAIN} points to"


def _snapshot_log(metadata: Metadata) -> Iterator[str]:
    ids = {snapshot["snapshot-id"] for snapshot in metadata.get("snapshots") or ()}
    log = metadata.get("snapshot-log") or []
    current = current_snapshot_id(metadata)
    for entry in log:
        if entry["snapshot-id"] not in ids:
            yield f"snapshot-log names snapshot {entry['snapshot-id']}, which does not exist"
    if log and current is not None and log[-1]["snapshot-id"] != current:
        yield f"snapshot-log does not end with the current snapshot {current}"


def _clocks(metadata: Metadata) -> Iterator[str]:
    """Java refuses logs that go back by more than a minute, and a document older than its logs."""
    for key in ("snapshot-log", "metadata-log"):
        times = [entry["timestamp-ms"] for entry in metadata.get(key) or ()]
        if any(later < earlier - CLOCK_SKEW_MS_MAX for earlier, later in pairwise(times)):
            yield f"{key} goes back in time"
        if times and metadata["last-updated-ms"] < times[-1] - CLOCK_SKEW_MS_MAX:
            yield f"last-updated-ms {metadata['last-updated-ms']} is before the last entry of {key}"


def _statistics(metadata: Metadata) -> Iterator[str]:
    yield from _unique(metadata, "statistics", "snapshot-id")
    yield from _unique(metadata, "partition-statistics", "snapshot-id")
    yield from _unique(metadata, "encryption-keys", "key-id")


def _legacy(metadata: Metadata) -> Iterator[str]:
    """v1 readers look at copies of the current schema and spec; they must say the same."""
    if metadata["format-version"] != 1:
        return
    schema = with_id(metadata["schemas"], "schema-id", metadata["current-schema-id"])
    legacy = metadata.get("schema")
    if not isinstance(legacy, dict) or refusal(index_schema, {"type": "struct"} | legacy):
        yield "schema is missing or malformed"
    elif schema is not None and not same_schema({"type": "struct"} | legacy, schema):
        yield "schema is not the current schema"
    spec = with_id(metadata["partition-specs"], "spec-id", metadata["default-spec-id"])
    fields = metadata.get("partition-spec")
    if spec is not None and (not isinstance(fields, list) or len(fields) != len(spec["fields"])):
        yield "partition-spec is not the default partition spec"
