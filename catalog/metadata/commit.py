"""A commit as one pure function: check the requirements, apply the updates in order, check the result.

    apply(metadata, requirements, updates, now_ms=..., metadata_location=...) -> metadata

`apply` never changes `metadata`. If the updates change nothing it returns the same object, and no new
metadata file is needed. It raises RequirementFailed (409, final), CommitFailed (409, the client may refresh
and retry) and Invalid (400). Clients compare the messages of failed requirements: these texts must not
change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from catalog.errors import Invalid, RequirementFailed
from catalog.metadata import partitioning, snapshots, table_updates
from catalog.metadata.document import (
    Draft,
    Metadata,
    has_snapshot,
    previous_versions_max,
    with_defaults,
    with_id,
)
from catalog.metadata.snapshots import finish_snapshot_log
from catalog.metadata.validation import (
    CLOCK_SKEW_MS_MAX,
    FORMAT_VERSION_DEFAULT,
    FORMAT_VERSION_MAX,
    FORMAT_VERSION_MIN,
    INT_MAX,
    LONG_MAX,
    REQUIREMENTS_MAX,
    UPDATES_MAX,
    JsonObject,
    check_json,
    integer,
    optional_long,
    preview,
    text,
)

UPDATES: dict[str, Callable[[Draft, JsonObject], None]] = {
    "assign-uuid": table_updates.assign_uuid,
    "upgrade-format-version": table_updates.upgrade_format_version,
    "set-location": table_updates.set_location,
    "set-properties": table_updates.set_properties,
    "remove-properties": table_updates.remove_properties,
    "add-schema": table_updates.add_schema,
    "set-current-schema": table_updates.set_current_schema,
    "remove-schemas": table_updates.remove_schemas,
    "add-spec": partitioning.add_spec,
    "set-default-spec": partitioning.set_default_spec,
    "remove-partition-specs": partitioning.remove_partition_specs,
    "add-sort-order": partitioning.add_sort_order,
    "set-default-sort-order": partitioning.set_default_sort_order,
    "add-snapshot": snapshots.add_snapshot,
    "remove-snapshots": snapshots.remove_snapshots,
    "set-snapshot-ref": snapshots.set_snapshot_ref,
    "remove-snapshot-ref": snapshots.remove_snapshot_ref,
    "set-statistics": table_updates.set_statistics,
    "remove-statistics": table_updates.remove_statistics,
    "set-partition-statistics": table_updates.set_partition_statistics,
    "remove-partition-statistics": table_updates.remove_partition_statistics,
    "add-encryption-key": table_updates.add_encryption_key,
    "remove-encryption-key": table_updates.remove_encryption_key,
}
ASSERT_CREATE = "assert-create"
_ANY_INT = -INT_MAX - 1


def apply(
    metadata: Metadata | None,
    requirements: list[JsonObject],
    updates: list[JsonObject],
    *,
    now_ms: int,
    metadata_location: str | None = None,
) -> Metadata:
    """The document after the commit.

    `metadata` is None if the table does not exist and the updates create it (a staged create).
    `metadata_location` is the file of `metadata`; it is added to the metadata log.
    """
    actions = _read_actions(updates)
    base = None if metadata is None else with_defaults(metadata)
    check_requirements(base, requirements)
    draft = _empty(updates, now_ms) if base is None else _draft_of(base, now_ms)
    for position, (action, update) in enumerate(zip(actions, updates, strict=True)):
        try:
            UPDATES[action](draft, update)
        except Invalid as refused:
            raise type(refused)(f"Invalid update {position} ({action}): {refused.message}") from refused
    document = finish(draft, metadata_location)
    return document if metadata is None or document is not base else metadata


def _read_actions(updates: Any) -> list[str]:
    """The action of each update. Unknown actions are refused before anything is changed."""
    if not isinstance(updates, list):
        raise Invalid(f"updates must be an array, not {preview(updates)}")
    if len(updates) > UPDATES_MAX:
        raise Invalid(f"more than {UPDATES_MAX} updates")
    actions = []
    for position, update in enumerate(updates):
        at = f"Invalid update {position}"
        if not isinstance(update, dict):
            raise Invalid(f"{at}: must be an object, not {preview(update)}")
        action = text(update, "action", at).lower()
        if action not in UPDATES:
            raise Invalid(f"{at}: cannot apply {preview(update['action'])} to a table")
        check_json(update, f"{at} ({action})")
        actions.append(action)
    return actions


def _draft_of(base: Metadata, now_ms: int) -> Draft:
    if base["format-version"] > FORMAT_VERSION_MAX:
        raise Invalid(
            f"Unsupported format version: v{base['format-version']} (supported: v{FORMAT_VERSION_MAX})"
        )
    return Draft.of(base, now_ms)


def _empty(updates: list[JsonObject], now_ms: int) -> Draft:
    """The format version of the first upgrade, with which a new table begins, so that an "upgrade" to v1
    works.
    """
    versions = [u.get("format-version") for u in updates if u["action"].lower() == "upgrade-format-version"]
    version = versions[0] if versions else FORMAT_VERSION_DEFAULT
    if type(version) is not int or not FORMAT_VERSION_MIN <= version <= FORMAT_VERSION_MAX:
        raise Invalid(f"Unsupported format version: {preview(version)} (supported: v{FORMAT_VERSION_MAX})")
    return Draft.empty(version, now_ms)


def is_replay(metadata: Metadata | None, requirements: Any, updates: Any) -> bool:
    """Whether this request has landed before and the client repeats it because the response was lost.

    It has, if the table has every snapshot of the request with the same manifest list; or if the request
    created this table, by its uuid, and everything that it added exists. Call this before checking the
    requirements. A malformed request is not a replay.
    """
    if metadata is None or not isinstance(requirements, list) or not isinstance(updates, list):
        return False
    if not all(isinstance(entry, dict) for entry in (*requirements, *updates)):
        return False
    added = [update.get("snapshot") for update in updates if update.get("action") == "add-snapshot"]
    if not all(isinstance(snapshot, dict) and type(snapshot.get("snapshot-id")) is int for snapshot in added):
        return False
    if any(requirement.get("type") == "assert-create" for requirement in requirements):
        uuids = [update.get("uuid") for update in updates if update.get("action") == "assign-uuid"]
        known = str(metadata.get("table-uuid")).lower()
        return bool(uuids) and str(uuids[-1]).lower() == known and _are_present(added, metadata)
    return bool(added) and _are_present(added, metadata)


def _are_present(added: list[JsonObject], metadata: Metadata) -> bool:
    wanted = {snapshot["snapshot-id"]: _files(snapshot) for snapshot in added}
    snapshots = metadata.get("snapshots") or []
    if not wanted or not has_snapshot(snapshots, next(iter(wanted))):
        return not wanted  # the usual case is a new commit
    known = {id_: _files(snapshot) for snapshot in snapshots if (id_ := snapshot["snapshot-id"]) in wanted}
    return known == wanted


def _files(snapshot: JsonObject) -> tuple[Any, Any]:
    return snapshot.get("manifest-list"), snapshot.get("manifests")


def check_requirements(metadata: Metadata | None, requirements: Any) -> None:
    """Check the requirements. Raises `Invalid` for a malformed one, before any is checked against the table,
    and `RequirementFailed` for one that does not hold.
    """
    checks = _read(requirements)
    if metadata is not None:
        metadata = with_defaults(metadata)
    types = [type_ for type_, _ in checks]
    if ASSERT_CREATE in types:
        others = sorted({type_ for type_ in types if type_ != ASSERT_CREATE})
        if others:
            raise Invalid(f"Invalid create requirements: {', '.join(others)} beside {ASSERT_CREATE}")
        if metadata is not None:
            raise RequirementFailed("Requirement failed: table already exists")
        return
    if metadata is None:
        raise Invalid(f"Invalid create requirements: a table that does not exist needs {ASSERT_CREATE}")
    for type_, requirement in checks:
        failure = _CHECKS[type_](metadata, requirement)
        if failure is not None:
            raise RequirementFailed(f"Requirement failed: {failure}")


def _read(requirements: Any) -> list[tuple[str, JsonObject]]:
    if not isinstance(requirements, list):
        raise Invalid(f"requirements must be an array, not {preview(requirements)}")
    if len(requirements) > REQUIREMENTS_MAX:
        raise Invalid(f"more than {REQUIREMENTS_MAX} requirements")
    read = []
    for position, requirement in enumerate(requirements):
        try:
            if not isinstance(requirement, dict):
                raise Invalid(f"must be an object, not {preview(requirement)}")
            type_ = text(requirement, "type").lower()
            if type_ not in _SHAPES:
                raise Invalid(f"Unrecognized update requirement: {preview(requirement['type'])}")
            _SHAPES[type_](requirement)
        except Invalid as refused:
            raise Invalid(f"Invalid requirement {position}: {refused.message}") from refused
        read.append((type_, requirement))
    return read


def _ref_shape(requirement: JsonObject) -> None:
    text(requirement, "ref")
    optional_long(requirement, "snapshot-id", low=-LONG_MAX - 1)


def _id_shape(key: str) -> Callable[[JsonObject], object]:
    return lambda requirement: integer(requirement, key, low=_ANY_INT)


_SHAPES: dict[str, Callable[[JsonObject], object]] = {
    ASSERT_CREATE: lambda requirement: None,
    "assert-table-uuid": lambda requirement: text(requirement, "uuid"),
    "assert-ref-snapshot-id": _ref_shape,
    "assert-last-assigned-field-id": _id_shape("last-assigned-field-id"),
    "assert-current-schema-id": _id_shape("current-schema-id"),
    "assert-last-assigned-partition-id": _id_shape("last-assigned-partition-id"),
    "assert-default-spec-id": _id_shape("default-spec-id"),
    "assert-default-sort-order-id": _id_shape("default-sort-order-id"),
}


def _table_uuid(metadata: Metadata, requirement: JsonObject) -> str | None:
    known, expected = metadata.get("table-uuid"), requirement["uuid"]
    if known is not None and known.lower() == expected.lower():
        return None
    return f"UUID does not match: expected {known} != {expected}"


def _ref_snapshot_id(metadata: Metadata, requirement: JsonObject) -> str | None:
    """A null id asserts that the reference does not exist."""
    name, expected = requirement["ref"], requirement.get("snapshot-id")
    ref = (metadata.get("refs") or {}).get(name)
    if ref is None:
        return None if expected is None else f"branch or tag {name} is missing, expected {expected}"
    if expected is None:
        return f"{ref['type']} {name} was created concurrently"
    if expected != ref["snapshot-id"]:
        return f"{ref['type']} {name} has changed: expected id {expected} != {ref['snapshot-id']}"
    return None


def _same_id(expected_key: str, known_key: str, what: str) -> Callable[[Metadata, JsonObject], str | None]:
    def check(metadata: Metadata, requirement: JsonObject) -> str | None:
        known, expected = metadata[known_key], requirement[expected_key]
        return None if known == expected else f"{what} changed: expected id {expected} != {known}"

    return check


_CHECKS: dict[str, Callable[[Metadata, JsonObject], str | None]] = {
    "assert-table-uuid": _table_uuid,
    "assert-ref-snapshot-id": _ref_snapshot_id,
    "assert-last-assigned-field-id": _same_id(
        "last-assigned-field-id", "last-column-id", "last assigned field id"
    ),
    "assert-current-schema-id": _same_id("current-schema-id", "current-schema-id", "current schema"),
    "assert-last-assigned-partition-id": _same_id(
        "last-assigned-partition-id", "last-partition-id", "last assigned partition id"
    ),
    "assert-default-spec-id": _same_id("default-spec-id", "default-spec-id", "default partition spec"),
    "assert-default-sort-order-id": _same_id(
        "default-sort-order-id", "default-sort-order-id", "default sort order"
    ),
}


def finish(draft: Draft, metadata_location: str | None) -> Metadata:
    """The resulting document, or the base itself if nothing changed."""
    document = draft.document
    if draft.base is None:
        _check_complete(document)
    if draft.layout_changed:
        check_layout(draft)
    finish_snapshot_log(draft)
    # Unchanged parts are the same objects, so this comparison is cheap.
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
    """Complete a new table. The first schema, spec and sort order are the default unless another was set."""
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
    """Check that the default spec and sort order fit the current schema, and that spec names do not clash."""
    document = draft.document
    index = draft.current_schema_index()
    for spec in document["partition-specs"]:
        partitioning.check_names(spec["fields"], index)
    spec = with_id(document["partition-specs"], "spec-id", document["default-spec-id"])
    order = with_id(document["sort-orders"], "order-id", document["default-sort-order-id"])
    if spec is None or order is None:
        raise Invalid("the default partition spec or sort order does not exist")
    partitioning.bind_partition_spec(spec["fields"], index)
    partitioning.bind_sort_order(order["fields"], index)


def legacy_fields(document: Metadata) -> Metadata:
    """Fields for v1 readers: the current schema and the fields of the default spec."""
    schema = with_id(document["schemas"], "schema-id", document["current-schema-id"])
    spec = with_id(document["partition-specs"], "spec-id", document["default-spec-id"])
    return {"schema": schema, "partition-spec": spec["fields"] if spec is not None else []}


def _last_updated_ms(draft: Draft) -> int:
    """The time of the added snapshot, else the current time, and never later than that.

    DuckDB ignores a table that was updated after its transaction began, by its own clock, so the writer's
    clock is used if a snapshot has it. Java refuses a document that is older than its logs by more than a
    minute, which is the lower bound.
    """
    added = [snapshot["timestamp-ms"] for snapshot in draft.snapshots_added.values()]
    times: list[int] = [added[-1] if added else draft.now_ms]
    for key in ("snapshot-log", "metadata-log"):
        log = draft.document.get(key)
        if log:
            times.append(log[-1]["timestamp-ms"] - CLOCK_SKEW_MS_MAX)
    return max(times)
