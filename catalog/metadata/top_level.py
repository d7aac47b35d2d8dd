"""The updates of single values of the document: assign-uuid, upgrade-format-version, set-location."""

from __future__ import annotations

import re

from catalog.errors import Invalid
from catalog.metadata.document import current_snapshot_id, set_current_snapshot_id
from catalog.metadata.draft import Draft
from catalog.metadata.limits import FORMAT_VERSION_MAX, FORMAT_VERSION_MIN, INT_MAX
from catalog.metadata.shapes import JsonObject, integer, shown, text

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def is_uuid(value: object) -> bool:
    return isinstance(value, str) and _UUID.fullmatch(value) is not None


def assign_uuid(draft: Draft, update: JsonObject) -> None:
    """Once, when the table is created. The same one again, in any case of letters, changes nothing."""
    uuid = text(update, "uuid")
    if not is_uuid(uuid):
        raise Invalid(f"uuid must be a UUID, not {shown(uuid)}")
    known = draft.document.get("table-uuid")
    if draft.base is None or known is None:
        draft.document["table-uuid"] = uuid
    elif known.lower() != uuid.lower():
        raise Invalid(f"Cannot reassign uuid: the table has {known}")


def upgrade_format_version(draft: Draft, update: JsonObject) -> None:
    upgrade(draft, integer(update, "format-version", low=FORMAT_VERSION_MIN, high=INT_MAX))


def upgrade(draft: Draft, version: int) -> None:
    """Snapshots stay as they are: a reader knows how to read those of earlier versions."""
    document = draft.document
    before = draft.format_version
    if version > FORMAT_VERSION_MAX:
        supported = f"(supported: v{FORMAT_VERSION_MAX})"
        raise Invalid(f"Cannot upgrade table to unsupported format version: v{version} {supported}")
    if version < before:
        raise Invalid(f"Cannot downgrade v{before} table to v{version}")
    if version == before:
        return
    document["format-version"] = version
    if before == 1:
        draft.drop("schema")
        draft.drop("partition-spec")
        document["last-sequence-number"] = 0
    if version >= 3 > before:
        document["next-row-id"] = 0
        if current_snapshot_id(document) is None:
            set_current_snapshot_id(document, None)


def set_location(draft: Draft, update: JsonObject) -> None:
    draft.document["location"] = without_trailing_slash(text(update, "location"))


def without_trailing_slash(location: str) -> str:
    """As Java stores it: but the slashes of "file:///" stay."""
    while location.endswith("/") and not location.endswith("://"):
        location = location[:-1]
    return location
