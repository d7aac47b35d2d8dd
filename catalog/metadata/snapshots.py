"""The updates add-snapshot and remove-snapshots."""

from __future__ import annotations

from catalog.errors import CommitFailed, Invalid
from catalog.metadata.document import with_id
from catalog.metadata.draft import Draft
from catalog.metadata.limits import CLOCK_SKEW_MS_MAX, LONG_MAX
from catalog.metadata.refs import drop_dangling_refs
from catalog.metadata.shapes import (
    JsonObject,
    integer,
    integers,
    long,
    mapping,
    optional_long,
    shown,
    string_map,
    strings,
    text,
    without_nulls,
)

OPERATIONS = ("append", "replace", "overwrite", "delete")

_OPTIONAL = (
    "sequence-number",
    "parent-snapshot-id",
    "manifest-list",
    "manifests",
    "schema-id",
    "first-row-id",
    "added-rows",
    "key-id",
)
_STALE = "Validation failed, please retry: "


def add_snapshot(draft: Draft, update: JsonObject) -> None:
    at = "snapshot"
    snapshot = without_nulls(mapping(update, at), *_OPTIONAL)
    _check_table_is_laid_out(draft)
    id_ = long(snapshot, "snapshot-id", at)
    if id_ in draft.snapshot_ids:
        raise Invalid(f"Snapshot already exists for id: {id_}")
    _check_time(snapshot, draft.now_ms, at)
    _check_content(snapshot, draft.format_version, at)
    snapshot = _with_sequence_number(draft, snapshot, at)
    snapshot = _with_schema_id(draft, snapshot, at)
    _assign_rows(draft, snapshot, at)
    draft.list_of("snapshots").append(snapshot)
    draft.snapshot_ids.add(id_)
    draft.snapshots_added[id_] = snapshot


def _check_table_is_laid_out(draft: Draft) -> None:
    for key, what in (
        ("schemas", "schema"),
        ("partition-specs", "partition spec"),
        ("sort-orders", "sort order"),
    ):
        if not draft.document[key]:
            raise Invalid(f"Attempting to add a snapshot before a {what} is added")


def _check_time(snapshot: JsonObject, now_ms: int, at: str) -> None:
    """A snapshot from the future would hide itself, and every later one, from readers that ask by time."""
    ahead_ms = long(snapshot, "timestamp-ms", at) - now_ms
    if ahead_ms > CLOCK_SKEW_MS_MAX:
        raise Invalid(
            f"{at}.timestamp-ms is {ahead_ms} ms ahead of the server's clock, more than {CLOCK_SKEW_MS_MAX}: "
            "set the client's clock"
        )


def _check_content(snapshot: JsonObject, version: int, at: str) -> None:
    if version == 1 and "manifest-list" not in snapshot and "manifests" in snapshot:
        strings(snapshot, "manifests", at)
    else:
        text(snapshot, "manifest-list", at)
    if version > 1 or snapshot.get("summary") is not None:
        operation = string_map(snapshot, "summary", at).get("operation")
        if operation not in OPERATIONS:
            raise Invalid(
                f"{at}.summary.operation must be one of {', '.join(OPERATIONS)}, not {shown(operation)}"
            )
    elif "summary" in snapshot:
        raise Invalid(f"{at}.summary must be an object, not null")
    if "key-id" in snapshot:
        text(snapshot, "key-id", at)


def _with_sequence_number(draft: Draft, snapshot: JsonObject, at: str) -> JsonObject:
    """The number must rise, unless there is no parent: a replace starts over, and may race with another."""
    parent = optional_long(snapshot, "parent-snapshot-id", at, low=-LONG_MAX - 1)
    if draft.format_version == 1:
        return _without_sequence_number(snapshot, at)
    sequence_number = long(snapshot, "sequence-number", at)
    last = draft.document["last-sequence-number"]
    if sequence_number <= last and parent is not None:
        raise CommitFailed(
            f"{_STALE}Cannot add snapshot with sequence number {sequence_number} "
            f"older than last sequence number {last}"
        )
    draft.document["last-sequence-number"] = max(last, sequence_number)
    return snapshot


def _without_sequence_number(snapshot: JsonObject, at: str) -> JsonObject:
    """v1 has none; clients that always send one send 0."""
    if "sequence-number" not in snapshot:
        return snapshot
    if long(snapshot, "sequence-number", at) != 0:
        raise Invalid(f"Sequence number must be 0 in v1: {snapshot['sequence-number']}")
    return {key: value for key, value in snapshot.items() if key != "sequence-number"}


def _with_schema_id(draft: Draft, snapshot: JsonObject, at: str) -> JsonObject:
    if "schema-id" not in snapshot:
        return snapshot
    given = integer(snapshot, "schema-id", at)
    id_ = draft.schemas.resolve(given, "schema")
    if with_id(draft.document["schemas"], "schema-id", id_) is None:
        raise CommitFailed(f"{_STALE}Cannot add snapshot with unknown schema {id_}")
    return snapshot if id_ == given else snapshot | {"schema-id": id_}


def _assign_rows(draft: Draft, snapshot: JsonObject, at: str) -> None:
    """From v3 on every row has an id for life, so the range of a snapshot must be free."""
    first = optional_long(snapshot, "first-row-id", at)
    added = optional_long(snapshot, "added-rows", at)
    if first is not None and added is None:
        raise Invalid(f"{at}.added-rows is missing: it is required when first-row-id is set")
    if draft.format_version < 3:
        return
    if first is None or added is None:
        raise Invalid("Cannot add a snapshot: first-row-id is null")
    free = draft.document["next-row-id"]
    if first < free:
        raise CommitFailed(
            f"{_STALE}Cannot add a snapshot, first-row-id is behind table next-row-id: {first} < {free}"
        )
    if first + added > LONG_MAX:
        raise Invalid(f"{at}: first-row-id and added-rows go beyond the highest row id")
    draft.document["next-row-id"] = first + added


def remove_snapshots(draft: Draft, update: JsonObject) -> None:
    """Unknown ids are no error. What hung on a removed snapshot goes with it; parent ids stay as they are."""
    ids = set(integers(update, "snapshot-ids", low=-LONG_MAX - 1, high=LONG_MAX)) & draft.snapshot_ids
    if not ids:
        return
    for key in ("snapshots", "statistics", "partition-statistics"):
        entries = draft.document.get(key) or []
        draft.put_list(key, [entry for entry in entries if entry["snapshot-id"] not in ids])
    for id_ in ids:
        draft.snapshots_added.pop(id_, None)
    draft.forget_snapshot_ids()
    draft.snapshots_removed = True
    drop_dangling_refs(draft)
