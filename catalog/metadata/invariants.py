"""Invariants of every stored table document, regardless of the program that wrote it.

`violations(metadata)` returns one sentence for each violation, and [] for a valid document. It never raises.
`apply` and `new_table` never produce a document with a violation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, ParamSpec

from catalog.errors import Invalid
from catalog.metadata import partitioning, validation
from catalog.metadata.document import (
    MAIN,
    PARTITION_FIELD_ID_START,
    Metadata,
    current_snapshot_id,
    highest_field_id,
    with_id,
)
from catalog.metadata.schemas import SchemaIndex, index_schema, same_schema
from catalog.metadata.table_updates import is_uuid
from catalog.metadata.validation import CLOCK_SKEW_MS_MAX, FORMAT_VERSION_MAX, FORMAT_VERSION_MIN, JsonObject

P = ParamSpec("P")
_REF_TYPES = ("branch", "tag")
_IDS = (
    "last-column-id",
    "current-schema-id",
    "default-spec-id",
    "last-partition-id",
    "default-sort-order-id",
)
_LISTS = ("schemas", "partition-specs", "sort-orders")
_OPTIONAL_LISTS = (
    "snapshots",
    "snapshot-log",
    "metadata-log",
    "statistics",
    "partition-statistics",
    "encryption-keys",
)
# Further required fields of the entries of these lists.
_ENTRIES: tuple[tuple[str, str, Callable[[JsonObject, str, str], object]], ...] = (
    ("snapshot-log", "snapshot-id", validation.long),
    ("snapshot-log", "timestamp-ms", validation.long),
    ("metadata-log", "metadata-file", validation.text),
    ("metadata-log", "timestamp-ms", validation.long),
    ("statistics", "snapshot-id", validation.long),
    ("statistics", "statistics-path", validation.text),
    ("partition-statistics", "snapshot-id", validation.long),
    ("partition-statistics", "statistics-path", validation.text),
    ("encryption-keys", "key-id", validation.text),
)


def violations(metadata: object) -> list[str]:
    if not isinstance(metadata, dict):
        return ["the document is not an object"]
    # The following checks need the right shapes, so they are skipped for a document with a wrong one.
    malformed = shape_errors(metadata)
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
    highest = highest_field_id(field for spec in specs for field in spec["fields"])
    if highest > max(metadata["last-partition-id"], PARTITION_FIELD_ID_START - 1):
        yield f"last-partition-id {metadata['last-partition-id']} is below partition field id {highest}"
    default = with_id(specs, "spec-id", metadata["default-spec-id"])
    index = _current_index(metadata)
    if default is None:
        yield f"default-spec-id {metadata['default-spec-id']} is not in partition-specs"
    elif index is not None:
        yield from refusal(partitioning.bind_partition_spec, default["fields"], index)
        for spec in specs:
            yield from refusal(partitioning.check_names, spec["fields"], index)


def _sort_orders(metadata: Metadata) -> Iterator[str]:
    yield from _unique(metadata, "sort-orders", "order-id")
    default = with_id(metadata["sort-orders"], "order-id", metadata["default-sort-order-id"])
    index = _current_index(metadata)
    if default is None:
        yield f"default-sort-order-id {metadata['default-sort-order-id']} is not in sort-orders"
    elif index is not None:
        yield from refusal(partitioning.bind_sort_order, default["fields"], index)


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
    """v1 readers use copies of the current schema and spec, so these must be equal."""
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


def refusal(check: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> list[str]:
    """The problem that a check reports: one sentence, or None."""
    try:
        check(*args, **kwargs)
    except Invalid as refused:
        return [refused.message]
    return []


def shape_errors(metadata: JsonObject) -> list[str]:
    # The entries are checked only if the lists are lists.
    return [*_top_level(metadata)] or [*_entries(metadata)]


def _top_level(metadata: JsonObject) -> Iterator[str]:
    version = metadata.get("format-version")
    yield from refusal(validation.check_json, metadata, "the document")
    yield from refusal(
        validation.integer, metadata, "format-version", low=FORMAT_VERSION_MIN, high=FORMAT_VERSION_MAX
    )
    yield from refusal(_check_uuid, metadata)
    yield from refusal(validation.text, metadata, "location")
    for key in _IDS:
        yield from refusal(validation.integer, metadata, key)
    yield from refusal(validation.long, metadata, "last-updated-ms")
    yield from refusal(validation.string_map, metadata, "properties")
    for key in _LISTS:
        yield from refusal(validation.objects, metadata, key)
    for key in _OPTIONAL_LISTS:
        if metadata.get(key) is not None:
            yield from refusal(validation.objects, metadata, key)
    if metadata.get("refs") is not None:
        yield from refusal(validation.mapping, metadata, "refs")
    yield from refusal(validation.optional_long, metadata, "current-snapshot-id", low=-1)
    if version != 1:
        yield from refusal(validation.long, metadata, "last-sequence-number")
    if version == 3:
        yield from refusal(validation.long, metadata, "next-row-id")


def _check_uuid(metadata: JsonObject) -> None:
    if not is_uuid(metadata.get("table-uuid")):
        raise Invalid(f"table-uuid must be a UUID, not {validation.preview(metadata.get('table-uuid'))}")


def _entries(metadata: JsonObject) -> Iterator[str]:
    version = metadata["format-version"]
    for at, schema in _with_paths(metadata, "schemas"):
        yield from refusal(validation.integer, schema, "schema-id", at)
        yield from refusal(index_schema, schema, version, at)
    for at, spec in _with_paths(metadata, "partition-specs"):
        yield from refusal(_check_spec, spec, version, at)
    for at, order in _with_paths(metadata, "sort-orders"):
        yield from refusal(_check_order, order, version, at)
    for at, snapshot in _with_paths(metadata, "snapshots"):
        yield from refusal(_check_snapshot, snapshot, at)
    for name, ref in (metadata.get("refs") or {}).items():
        yield from refusal(_check_ref, ref, f"refs.{name}")
    for key, id_key, check in _ENTRIES:
        for at, entry in _with_paths(metadata, key):
            yield from refusal(check, entry, id_key, at)


def _with_paths(metadata: JsonObject, key: str) -> Iterator[tuple[str, Any]]:
    for index, entry in enumerate(metadata.get(key) or ()):
        yield f"{key}[{index}]", entry


def _check_spec(spec: JsonObject, version: int, at: str) -> None:
    validation.integer(spec, "spec-id", at)
    for index, field in enumerate(partitioning.read_partition_fields(spec, version, at)):
        validation.integer(field, "field-id", f"{at}.fields[{index}]")


def _check_order(order: JsonObject, version: int, at: str) -> None:
    validation.integer(order, "order-id", at)
    partitioning.read_sort_fields(order, version, at)


def _check_snapshot(snapshot: JsonObject, at: str) -> None:
    validation.long(snapshot, "snapshot-id", at)
    validation.long(snapshot, "timestamp-ms", at)
    for key in ("sequence-number", "first-row-id", "added-rows"):
        validation.optional_long(snapshot, key, at)
    if snapshot.get("manifests") is None:
        validation.text(snapshot, "manifest-list", at)
    if snapshot.get("summary") is not None:
        validation.string_map(snapshot, "summary", at)


def _check_ref(ref: object, at: str) -> None:
    if not isinstance(ref, dict):
        raise validation.wrong(at, "an object", ref)
    validation.long(ref, "snapshot-id", at)
    if validation.text(ref, "type", at) not in _REF_TYPES:
        raise Invalid(f"{at}.type must be one of {', '.join(_REF_TYPES)}")
