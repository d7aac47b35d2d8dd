"""A commit as one pure function: requirements, then updates in order, then what must hold of the whole.

    apply(metadata, requirements, updates, now_ms=..., metadata_location=...) -> metadata

`metadata` is never changed; if nothing effectively changed it is returned itself, and no new file is needed.
Raises RequirementFailed (409, final), CommitFailed (409, the client may refresh and retry), Invalid (400).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from catalog.errors import Invalid
from catalog.metadata import (
    encryption,
    partitioning,
    properties,
    refs,
    schema_updates,
    snapshots,
    sorting,
    statistics,
    top_level,
)
from catalog.metadata.completion import completed
from catalog.metadata.document import Metadata, snapshot_id_of
from catalog.metadata.draft import Draft
from catalog.metadata.finishing import finish
from catalog.metadata.limits import (
    FORMAT_VERSION_DEFAULT,
    FORMAT_VERSION_MAX,
    FORMAT_VERSION_MIN,
    UPDATES_MAX,
)
from catalog.metadata.requirements import check_requirements
from catalog.metadata.shapes import JsonObject, check_json, shown, text

__all__ = ["UPDATES", "apply", "check_requirements", "is_replay"]

UPDATES: dict[str, Callable[[Draft, JsonObject], None]] = {
    "assign-uuid": top_level.assign_uuid,
    "upgrade-format-version": top_level.upgrade_format_version,
    "set-location": top_level.set_location,
    "set-properties": properties.set_properties,
    "remove-properties": properties.remove_properties,
    "add-schema": schema_updates.add_schema,
    "set-current-schema": schema_updates.set_current_schema,
    "remove-schemas": schema_updates.remove_schemas,
    "add-spec": partitioning.add_spec,
    "set-default-spec": partitioning.set_default_spec,
    "remove-partition-specs": partitioning.remove_partition_specs,
    "add-sort-order": sorting.add_sort_order,
    "set-default-sort-order": sorting.set_default_sort_order,
    "add-snapshot": snapshots.add_snapshot,
    "remove-snapshots": snapshots.remove_snapshots,
    "set-snapshot-ref": refs.set_snapshot_ref,
    "remove-snapshot-ref": refs.remove_snapshot_ref,
    "set-statistics": statistics.set_statistics,
    "remove-statistics": statistics.remove_statistics,
    "set-partition-statistics": statistics.set_partition_statistics,
    "remove-partition-statistics": statistics.remove_partition_statistics,
    "add-encryption-key": encryption.add_encryption_key,
    "remove-encryption-key": encryption.remove_encryption_key,
}


def apply(
    metadata: Metadata | None,
    requirements: list[JsonObject],
    updates: list[JsonObject],
    *,
    now_ms: int,
    metadata_location: str | None = None,
) -> Metadata:
    """The document after the commit.

    `metadata` None: the table does not exist yet, and is made from nothing by the updates (a staged create).
    `metadata_location`: the file that holds `metadata`; it enters the metadata log.
    """
    actions = _read_actions(updates)
    base = None if metadata is None else completed(metadata)
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
    """The action of each update, all of them known, before anything is changed."""
    if not isinstance(updates, list):
        raise Invalid(f"updates must be an array, not {shown(updates)}")
    if len(updates) > UPDATES_MAX:
        raise Invalid(f"more than {UPDATES_MAX} updates")
    actions = []
    for position, update in enumerate(updates):
        at = f"Invalid update {position}"
        if not isinstance(update, dict):
            raise Invalid(f"{at}: must be an object, not {shown(update)}")
        action = text(update, "action", at).lower()
        if action not in UPDATES:
            raise Invalid(f"{at}: cannot apply {shown(update['action'])} to a table")
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
    """A new table begins at the version of the first upgrade, so that an "upgrade" to v1 is possible."""
    versions = [u.get("format-version") for u in updates if u["action"].lower() == "upgrade-format-version"]
    version = versions[0] if versions else FORMAT_VERSION_DEFAULT
    if type(version) is not int or not FORMAT_VERSION_MIN <= version <= FORMAT_VERSION_MAX:
        raise Invalid(f"Unsupported format version: {shown(version)} (supported: v{FORMAT_VERSION_MAX})")
    return Draft.empty(version, now_ms)


def is_replay(metadata: Metadata | None, requirements: Any, updates: Any) -> bool:
    """Whether this very request has landed already: its client did not get the answer and asks again.

    Then every snapshot it adds is there with the same manifest list; or it created this table, by the uuid,
    and what it added is there. To be asked before the requirements are checked. A malformed request is no
    replay.
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
    # The usual case, a new commit, is one pass at the speed of C.
    if wanted.keys().isdisjoint(map(snapshot_id_of, snapshots)):
        return not wanted
    known = {id_: _files(snapshot) for snapshot in snapshots if (id_ := snapshot["snapshot-id"]) in wanted}
    return known == wanted


def _files(snapshot: JsonObject) -> tuple[Any, Any]:
    return snapshot.get("manifest-list"), snapshot.get("manifests")
