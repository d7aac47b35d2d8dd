"""Table properties: the updates set-properties and remove-properties, and what the engine reads there."""

from __future__ import annotations

import re

from catalog.errors import Invalid
from catalog.metadata.draft import Draft
from catalog.metadata.limits import (
    FORMAT_VERSION_DEFAULT,
    FORMAT_VERSION_MAX,
    FORMAT_VERSION_MIN,
    METADATA_LOG_ENTRIES_DEFAULT,
)
from catalog.metadata.shapes import JsonObject, shown, string_map, strings
from catalog.metadata.top_level import upgrade

FORMAT_VERSION = "format-version"
PREVIOUS_VERSIONS_MAX = "write.metadata.previous-versions-max"
DELETE_AFTER_COMMIT = "write.metadata.delete-after-commit.enabled"

# These steer a request, or describe the table to engines; they are never kept.
RESERVED = frozenset(
    {
        FORMAT_VERSION,
        "uuid",
        "snapshot-count",
        "current-snapshot-id",
        "current-snapshot-summary",
        "current-snapshot-timestamp-ms",
        "current-schema",
        "default-partition-spec",
        "default-sort-order",
    }
)
NEW_TABLE_DEFAULTS = {"write.parquet.compression-codec": "zstd"}

_NOT_NEGATIVE = (
    "commit.retry.num-retries",
    "commit.retry.min-wait-ms",
    "commit.retry.max-wait-ms",
    "commit.retry.total-timeout-ms",
)
_ENCRYPTION = frozenset({"encryption.key-id", "encryption.data-key-length"})
_INTEGER = re.compile(r"[+-]?\d{1,10}", re.ASCII)


def set_properties(draft: Draft, update: JsonObject) -> None:
    """`updated` is the key of old clients. Setting `format-version` upgrades, as engines expect of it."""
    updates = string_map(update, "updates" if "updates" in update else "updated")
    kept = {key: value for key, value in updates.items() if key not in RESERVED}
    if kept:
        draft.map_of("properties").update(kept)
    if FORMAT_VERSION in updates and draft.base is not None:
        upgrade(draft, read_format_version(updates))


def remove_properties(draft: Draft, update: JsonObject) -> None:
    """Removing what is not there is no error."""
    known = draft.document.get("properties") or {}
    removals = strings(update, "removals" if "removals" in update else "removed")
    for name in removals:
        if name in known:
            draft.map_of("properties").pop(name, None)


def read_format_version(properties: dict[str, str]) -> int:
    value = properties.get(FORMAT_VERSION)
    if value is None:
        return FORMAT_VERSION_DEFAULT
    if _INTEGER.fullmatch(value) is None:
        raise Invalid(f"Table property {FORMAT_VERSION} must have integer value, not {shown(value)}")
    version = int(value)
    if not FORMAT_VERSION_MIN <= version <= FORMAT_VERSION_MAX:
        raise Invalid(f"Unsupported format version: v{version} (supported: v{FORMAT_VERSION_MAX})")
    return version


def new_table_properties(given: dict[str, str], version: int) -> dict[str, str]:
    """The properties of a new table: the defaults for new tables, and what the client set and may be kept."""
    for key in _NOT_NEGATIVE:
        value = given.get(key)
        if value is not None and _INTEGER.fullmatch(value) is None:
            raise Invalid(f"Table property {key} must have integer value")
        if value is not None and int(value) < 0:
            raise Invalid(f"Table property {key} must have non negative integer value")
    encryption = sorted(_ENCRYPTION & given.keys())
    if encryption and version < 3:
        raise Invalid(f"Invalid properties for v{version}: {', '.join(encryption)}")
    return NEW_TABLE_DEFAULTS | {key: value for key, value in given.items() if key not in RESERVED}


def previous_versions_max(properties: dict[str, str]) -> int:
    """How many entries the metadata log keeps: at least one. A value that is no number counts as none."""
    value = properties.get(PREVIOUS_VERSIONS_MAX)
    if not isinstance(value, str) or _INTEGER.fullmatch(value) is None:
        return METADATA_LOG_ENTRIES_DEFAULT
    return max(1, int(value))


def deletes_old_metadata(properties: dict[str, str]) -> bool:
    """Whether metadata files that fall out of the log are deleted."""
    return str(properties.get(DELETE_AFTER_COMMIT, "false")).lower() == "true"
