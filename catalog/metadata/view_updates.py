"""The updates of a view, and its versions: required fields, and when two versions are the same."""

from __future__ import annotations

import uuid as uuids
from collections.abc import Callable
from dataclasses import dataclass, field

from catalog.errors import IllegalArgument, Invalid
from catalog.metadata import validation
from catalog.metadata.document import Added, with_id
from catalog.metadata.schemas import index_schema, same_schema, tidy_schema
from catalog.metadata.validation import INT_MAX, LONG_MAX, JsonObject

LAST_ADDED = -1
# Two versions are the same if everything but the id and the time is equal.
_NOT_COMPARED = frozenset(("version-id", "timestamp-ms"))
FORMAT_VERSION = 1
# Clients send five. Each added schema and version is compared with all existing ones.
VIEW_UPDATES_MAX = 100


def checked_version(version: JsonObject) -> JsonObject:
    """A copy of a client's version in the form of the spec. Unknown fields are kept."""
    at = "view-version"
    validation.check_json(version, at)
    validation.integer(version, "version-id", at, low=LAST_ADDED)
    validation.integer(version, "schema-id", at, low=LAST_ADDED)
    validation.integer(version, "timestamp-ms", at, high=LONG_MAX)
    validation.string_map(version, "summary", at)
    validation.strings(version, "default-namespace", at)
    # Null and absent mean the same: the catalog of the view.
    version = dict(validation.without_nulls(version, "default-catalog"))
    if "default-catalog" in version:
        validation.text(version, "default-catalog", at)
    version["representations"] = _checked_representations(validation.objects(version, "representations", at))
    return version


def same_version(one: JsonObject, other: JsonObject) -> bool:
    """True if the two versions are equal except for id and time."""
    keys = (one.keys() | other.keys()) - _NOT_COMPARED
    return all(one.get(key) == other.get(key) for key in keys)


def dialects(version: JsonObject) -> set[str]:
    """The SQL dialects of a version, in lower case: `Spark` and `spark` are one dialect."""
    return {
        representation["dialect"].lower()
        for representation in version["representations"]
        if representation.get("type") == "sql"
    }


def _checked_representations(representations: list[JsonObject]) -> list[JsonObject]:
    if not representations:
        raise Invalid("Invalid view version: there must be at least one representation")
    checked = [_checked_representation(representation) for representation in representations]
    seen: set[str] = set()
    for representation in checked:
        dialect = representation["dialect"].lower()
        if dialect in seen:
            raise IllegalArgument(f"Invalid view version: Cannot add multiple queries for dialect {dialect}")
        seen.add(dialect)
    return checked


def _checked_representation(representation: JsonObject) -> JsonObject:
    at = "view-version.representations"
    kind = validation.text(representation, "type", at)
    if kind.lower() != "sql":
        raise Invalid(f"Invalid view version: unsupported view representation: {validation.preview(kind)}")
    validation.text(representation, "sql", at)
    validation.text(representation, "dialect", at)
    # Some readers accept only lower-case "sql".
    return {**representation, "type": "sql"}


@dataclass(slots=True)
class ViewDraft:
    """The document so far (values are replaced, never changed in place) and what this commit has added."""

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
    checked = validation.objects({"updates": updates}, "updates")
    if len(checked) > VIEW_UPDATES_MAX:
        raise Invalid(f"updates must be at most {VIEW_UPDATES_MAX}, not {len(checked)}")
    for position, update in enumerate(checked):
        action = validation.text(update, "action", f"updates[{position}]")
        if action not in UPDATES:
            raise Invalid(f"Unknown view update: {validation.preview(action)}")
    return checked


def _assign_uuid(draft: ViewDraft, update: JsonObject) -> None:
    new = validation.text(update, "uuid", "assign-uuid")
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
    new = validation.integer(update, "format-version", "upgrade-format-version")
    current = draft.document["format-version"]
    if new < current:
        raise IllegalArgument(f"Cannot downgrade v{current} view to v{new}")
    if new > FORMAT_VERSION:
        raise IllegalArgument(f"Unsupported format version: {new}")


def add_schema(draft: ViewDraft, update: JsonObject) -> None:
    schema = validation.mapping(update, "schema", "add-schema")
    validation.check_json(schema, "schema")
    schema = tidy_schema(schema, index_schema(schema))
    schemas: list[JsonObject] = draft.document["schemas"]
    known = next((known for known in schemas if same_schema(known, schema)), None)
    if known is None:
        known = schema | {"schema-id": _next_id(schemas, "schema-id", first=0)}
        draft.document["schemas"] = [*schemas, known]
    draft.schemas_added.add(schema.get("schema-id"), known["schema-id"])


def _set_location(draft: ViewDraft, update: JsonObject) -> None:
    draft.document["location"] = validation.text(update, "location", "set-location")


def _set_properties(draft: ViewDraft, update: JsonObject) -> None:
    changes = validation.string_map(update, "updates", "set-properties")
    if changes:
        draft.document["properties"] = {**draft.document.get("properties", {}), **changes}


def _remove_properties(draft: ViewDraft, update: JsonObject) -> None:
    removals = set(validation.strings(update, "removals", "remove-properties"))
    properties = draft.document.get("properties", {})
    if removals & properties.keys():
        draft.document["properties"] = {
            key: value for key, value in properties.items() if key not in removals
        }


def add_view_version(draft: ViewDraft, update: JsonObject) -> None:
    version = checked_version(validation.mapping(update, "view-version", "add-view-version"))
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
    # An equal existing version counts as added, because a client may be repeating its commit.
    draft.versions_added.add(version_id_given, known["version-id"])


def set_current_view_version(draft: ViewDraft, update: JsonObject) -> None:
    given = validation.integer(update, "view-version-id", "set-current-view-version", low=LAST_ADDED)
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
