"""The eight view updates: one small function for each, over a draft of the document.

`actions` checks that a request's updates are known; `UPDATES` maps each action to its function. Ids are ours
to give, as the client's may be taken; within its request a client may use its own, or -1 for the last added.
"""

from __future__ import annotations

import uuid as uuids
from collections.abc import Callable
from dataclasses import dataclass, field

from catalog.errors import IllegalArgument, Invalid
from catalog.metadata import shapes
from catalog.metadata.document import with_id
from catalog.metadata.draft import Added
from catalog.metadata.limits import INT_MAX
from catalog.metadata.schema_equality import same_schema
from catalog.metadata.schemas import index_schema, tidy_schema
from catalog.metadata.shapes import JsonObject
from catalog.metadata.view_versions import LAST_ADDED, checked_version, same_version

FORMAT_VERSION = 1
# Clients send five. Each added schema and version is compared with all that are there.
VIEW_UPDATES_MAX = 100


@dataclass(slots=True)
class ViewDraft:
    """The document so far (values are replaced, never changed in place) and what this commit added."""

    document: JsonObject
    now_ms: int
    schemas_added: Added = field(default_factory=Added)
    versions_added: Added = field(default_factory=Added)
    version_ids_new: set[int] = field(default_factory=set)

    @property
    def versions(self) -> list[JsonObject]:
        versions: list[JsonObject] = self.document["versions"]
        return versions

    def version(self, version_id: int | None) -> JsonObject | None:
        return with_id(self.versions, "version-id", version_id)


def actions(updates: object) -> list[JsonObject]:
    """The updates of a request, each an object with a known action."""
    checked = shapes.objects({"updates": updates}, "updates")
    if len(checked) > VIEW_UPDATES_MAX:
        raise Invalid(f"updates must be at most {VIEW_UPDATES_MAX}, not {len(checked)}")
    for position, update in enumerate(checked):
        action = shapes.text(update, "action", f"updates[{position}]")
        if action not in UPDATES:
            raise Invalid(f"Unknown view update: {shapes.shown(action)}")
    return checked


def _assign_uuid(draft: ViewDraft, update: JsonObject) -> None:
    new = shapes.text(update, "uuid", "assign-uuid")
    current = draft.document["view-uuid"]
    if current is not None:
        if new.lower() != current.lower():
            raise IllegalArgument("Cannot reassign uuid")
        return
    try:
        draft.document["view-uuid"] = str(uuids.UUID(new))
    except ValueError:
        raise Invalid("assign-uuid.uuid must be a UUID") from None


def _upgrade_format_version(draft: ViewDraft, update: JsonObject) -> None:
    new = shapes.integer(update, "format-version", "upgrade-format-version")
    current = draft.document["format-version"]
    if new < current:
        raise IllegalArgument(f"Cannot downgrade v{current} view to v{new}")
    if new > FORMAT_VERSION:
        raise IllegalArgument(f"Unsupported format version: {new}")


def add_schema(draft: ViewDraft, update: JsonObject) -> None:
    schema = shapes.mapping(update, "schema", "add-schema")
    shapes.check_json(schema, "schema")
    schema = tidy_schema(schema, index_schema(schema))
    schemas: list[JsonObject] = draft.document["schemas"]
    known = next((known for known in schemas if same_schema(known, schema)), None)
    if known is None:
        known = schema | {"schema-id": _next_id(schemas, "schema-id", first=0)}
        draft.document["schemas"] = [*schemas, known]
    draft.schemas_added.note(schema.get("schema-id"), known["schema-id"])


def _set_location(draft: ViewDraft, update: JsonObject) -> None:
    draft.document["location"] = shapes.text(update, "location", "set-location")


def _set_properties(draft: ViewDraft, update: JsonObject) -> None:
    changes = shapes.string_map(update, "updates", "set-properties")
    if changes:
        draft.document["properties"] = {**draft.document.get("properties", {}), **changes}


def _remove_properties(draft: ViewDraft, update: JsonObject) -> None:
    removals = set(shapes.strings(update, "removals", "remove-properties"))
    properties = draft.document.get("properties", {})
    if removals & properties.keys():
        draft.document["properties"] = {
            key: value for key, value in properties.items() if key not in removals
        }


def add_view_version(draft: ViewDraft, update: JsonObject) -> None:
    version = checked_version(shapes.mapping(update, "view-version", "add-view-version"))
    version_id_given = version["version-id"]
    version["schema-id"] = draft.schemas_added.resolve(version["schema-id"], "schema")
    if with_id(draft.document["schemas"], "schema-id", version["schema-id"]) is None:
        raise IllegalArgument(f"Cannot add version with unknown schema: {version['schema-id']}")
    known = next((known for known in draft.versions if same_version(known, version)), None)
    if known is None:
        version["version-id"] = _next_id(draft.versions, "version-id", first=1)
        known = version
        draft.document["versions"] = [*draft.versions, version]
        draft.version_ids_new.add(version["version-id"])
    # An equal version that was there before counts as added: a client that sends its commit again means it.
    draft.versions_added.note(version_id_given, known["version-id"])


def set_current_view_version(draft: ViewDraft, update: JsonObject) -> None:
    given = shapes.integer(update, "view-version-id", "set-current-view-version", low=LAST_ADDED)
    version_id = draft.versions_added.resolve(given, "view version")
    if draft.version(version_id) is None:
        raise IllegalArgument(f"Cannot set current version to unknown version: {version_id}")
    draft.document["current-version-id"] = version_id


def _next_id(known: list[JsonObject], key: str, *, first: int) -> int:
    next_id: int = max((entry[key] + 1 for entry in known), default=first)
    if next_id > INT_MAX:
        raise IllegalArgument(f"Cannot give another {key}: {next_id - 1} is the highest")
    return next_id


UPDATES: dict[str, Callable[[ViewDraft, JsonObject], None]] = {
    "assign-uuid": _assign_uuid,
    "upgrade-format-version": _upgrade_format_version,
    "add-schema": add_schema,
    "set-location": _set_location,
    "set-properties": _set_properties,
    "remove-properties": _remove_properties,
    "add-view-version": add_view_version,
    "set-current-view-version": set_current_view_version,
}
