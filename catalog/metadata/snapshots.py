"""Snapshots, branches and tags, and the snapshot log.

The snapshot log records which snapshot was current from which time on; readers resolve "as of" with it. A new
snapshot is logged with its own time, a rollback with the time of the request. A snapshot that was current
only inside one request is not logged, because it was never visible. When a snapshot is removed, all earlier
entries are removed too: with a gap, a reader would get the wrong snapshot for that time.
"""

from __future__ import annotations

from typing import Any

from catalog.errors import CommitFailed, Invalid
from catalog.metadata.document import (
    MAIN,
    Draft,
    current_snapshot_id,
    previous_versions_max,
    set_current_snapshot_id,
    with_id,
)
from catalog.metadata.validation import (
    CLOCK_SKEW_MS_MAX,
    INT_MAX,
    LONG_MAX,
    JsonObject,
    integer,
    integers,
    long,
    mapping,
    optional_long,
    preview,
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
_TYPES = ("branch", "tag")
_RETENTION = {"min-snapshots-to-keep": INT_MAX, "max-snapshot-age-ms": LONG_MAX, "max-ref-age-ms": LONG_MAX}
_BRANCH_ONLY = ("min-snapshots-to-keep", "max-snapshot-age-ms")


def add_snapshot(draft: Draft, update: JsonObject) -> None:
    at = "snapshot"
    snapshot = without_nulls(mapping(update, at), *_OPTIONAL)
    _check_table_is_laid_out(draft)
    id_ = long(snapshot, "snapshot-id", at)
    if draft.has_snapshot(id_):
        raise Invalid(f"Snapshot already exists for id: {id_}")
    _check_time(snapshot, draft.now_ms, at)
    _check_content(snapshot, draft.format_version, at)
    snapshot = _with_sequence_number(draft, snapshot, at)
    snapshot = _with_schema_id(draft, snapshot, at)
    _assign_rows(draft, snapshot, at)
    draft.add_snapshot(id_, snapshot)


def _check_table_is_laid_out(draft: Draft) -> None:
    for key, what in (
        ("schemas", "schema"),
        ("partition-specs", "partition spec"),
        ("sort-orders", "sort order"),
    ):
        if not draft.document[key]:
            raise Invalid(f"Attempting to add a snapshot before a {what} is added")


def _check_time(snapshot: JsonObject, now_ms: int, at: str) -> None:
    """Refuse a snapshot from the future: readers by time would not find it, nor any later one."""
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
                f"{at}.summary.operation must be one of {', '.join(OPERATIONS)}, not {preview(operation)}"
            )
    elif "summary" in snapshot:
        raise Invalid(f"{at}.summary must be an object, not null")
    if "key-id" in snapshot:
        text(snapshot, "key-id", at)


def _with_sequence_number(draft: Draft, snapshot: JsonObject, at: str) -> JsonObject:
    """The sequence number must increase, except without a parent: a replace may run concurrently with
    others.
    """
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
    """v1 has no sequence numbers; clients that always send one send 0."""
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
    """From v3 on each row has a permanent id, so the row id range of a snapshot must be unused."""
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
    """Remove snapshots with their refs and statistics. Unknown ids are not an error; parent ids are kept."""
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


def set_snapshot_ref(draft: Draft, update: JsonObject) -> None:
    name = text(update, "ref-name")
    ref = _read_ref(update)
    if (draft.document.get("refs") or {}).get(name) == ref:
        return
    id_ = ref["snapshot-id"]
    if id_ not in draft.snapshots_added and not draft.has_snapshot(id_):
        raise Invalid(f"Cannot set {name} to unknown snapshot: {id_}")
    if name == MAIN:
        if ref["type"] != "branch":
            raise Invalid(f"Cannot set {MAIN} to a tag, it must be a branch")
        _set_current_snapshot(draft, id_)
    draft.map_of("refs")[name] = ref


def _read_ref(update: JsonObject) -> JsonObject:
    """The stored form of a reference: the update without its own two keys. Unknown keys are kept."""
    long(update, "snapshot-id")
    type_ = text(update, "type").lower()
    if type_ not in _TYPES:
        raise Invalid(f"Invalid snapshot ref type: {preview(update['type'])}")
    update = without_nulls(update, *_RETENTION)
    for key, high in _RETENTION.items():
        if key in update:
            integer(update, key, low=1, high=high)
            if type_ == "tag" and key in _BRANCH_ONLY:
                raise Invalid(f"Tags do not support setting {key}")
    return {key: value for key, value in update.items() if key not in ("action", "ref-name")} | {
        "type": type_
    }


def _set_current_snapshot(draft: Draft, id_: int) -> None:
    if current_snapshot_id(draft.document) == id_:
        return
    set_current_snapshot_id(draft.document, id_)
    log_current_snapshot(draft, id_)


def remove_snapshot_ref(draft: Draft, update: JsonObject) -> None:
    """Remove a reference. A missing one is not an error."""
    _remove(draft, text(update, "ref-name"))


def drop_dangling_refs(draft: Draft) -> None:
    """Remove references whose snapshots were removed."""
    refs: dict[str, JsonObject] = draft.document.get("refs") or {}
    ids = draft.snapshot_ids
    for name in [name for name, ref in refs.items() if ref["snapshot-id"] not in ids]:
        _remove(draft, name)


def _remove(draft: Draft, name: str) -> None:
    if name == MAIN:
        set_current_snapshot_id(draft.document, None)
    if name in (draft.document.get("refs") or {}):
        del draft.map_of("refs")[name]


def log_current_snapshot(draft: Draft, id_: int) -> None:
    added = draft.snapshots_added.get(id_)
    if added is not None:
        draft.main_added.add(id_)
    log = draft.list_of("snapshot-log")
    own_ms = draft.now_ms if added is None else added["timestamp-ms"]
    last_ms = log[-1]["timestamp-ms"] if log else own_ms
    log.append({"timestamp-ms": _readable(own_ms, last_ms, draft.now_ms), "snapshot-id": id_})


def _readable(own_ms: int, last_ms: int, now_ms: int) -> int:
    """Java refuses a log that goes back by more than a minute; such a change is logged with the
    current time.
    """
    earliest_ms = last_ms - CLOCK_SKEW_MS_MAX
    if own_ms >= earliest_ms:
        return own_ms
    return now_ms if now_ms >= earliest_ms else last_ms


def finish_snapshot_log(draft: Draft) -> None:
    current = current_snapshot_id(draft.document)
    unseen = draft.main_added - {current}
    if not unseen and not draft.snapshots_removed:
        return
    log: list[JsonObject] = [
        e for e in draft.document.get("snapshot-log") or () if e["snapshot-id"] not in unseen
    ]
    if draft.snapshots_removed:
        ids = draft.snapshot_ids
        gaps = [index for index, entry in enumerate(log) if entry["snapshot-id"] not in ids]
        if gaps:
            log = log[gaps[-1] + 1 :]
    draft.put_list("snapshot-log", log)


def collapse_logs(
    metadata: dict[str, Any], published: dict[str, Any] | None, published_location: str | None
) -> dict[str, Any]:
    """The document with the logs of the published version, plus one entry each for the current state."""
    before = (published or {}).get("snapshot-log") or []
    now = metadata.get("snapshot-log") or []
    if now[: len(before)] == before:  # the usual case: entries that were not touched are the same objects
        kept = before
    else:
        left = {_log_key(entry) for entry in now}
        kept = [entry for entry in before if _log_key(entry) in left]
    if now and (not kept or now[-1] != kept[-1]):
        kept = [*kept, now[-1]]
    squashed = metadata | {"snapshot-log": kept, "metadata-log": []}
    if published is not None and published_location is not None:
        entry = {"timestamp-ms": published["last-updated-ms"], "metadata-file": published_location}
        log = [*(published.get("metadata-log") or []), entry]
        squashed["metadata-log"] = log[-previous_versions_max(metadata.get("properties") or {}) :]
    return squashed


def _log_key(entry: JsonObject) -> tuple[int, int]:
    return entry["timestamp-ms"], entry["snapshot-id"]


def set_publish_time(
    metadata: dict[str, Any], published: dict[str, Any] | None, now_ms: int
) -> dict[str, Any]:
    """The document with the time of its publishing, which is the same for all tables of a transaction.

    Otherwise a reader "as of" a time between the writes to two tables would see only one of them changed.
    """
    log = list(metadata.get("snapshot-log") or [])
    known = (published or {}).get("snapshot-log") or []
    # Entries of the published log keep their order, so an entry of both is not earlier in the published one.
    if log and log[-1] not in known[len(log) - 1 :]:
        log[-1] = log[-1] | {"timestamp-ms": max(now_ms, log[-1]["timestamp-ms"])}
    return metadata | {"snapshot-log": log, "last-updated-ms": max(now_ms, metadata["last-updated-ms"])}
