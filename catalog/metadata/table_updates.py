"""The updates of a table other than snapshots, partition specs and sort orders.

They set the uuid, format version, location, properties, schemas, statistics files and encryption keys.
"""

from __future__ import annotations

import base64
import binascii
import re

from catalog.errors import Invalid
from catalog.metadata.document import (
    LAST_ADDED,
    Draft,
    current_snapshot_id,
    set_current_snapshot_id,
    with_id,
)
from catalog.metadata.schemas import index_schema, same_schema, tidy_schema
from catalog.metadata.validation import (
    FORMAT_VERSION_DEFAULT,
    FORMAT_VERSION_MAX,
    FORMAT_VERSION_MIN,
    INT_MAX,
    LONG_MAX,
    JsonObject,
    integer,
    integers,
    long,
    mapping,
    objects,
    preview,
    string_map,
    strings,
    text,
    without_nulls,
)

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
FORMAT_VERSION = "format-version"
# These properties control a request or describe the table to engines; they are never stored.
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
STATISTICS = "statistics"
PARTITION_STATISTICS = "partition-statistics"
KEYS = "encryption-keys"


def is_uuid(value: object) -> bool:
    return isinstance(value, str) and _UUID.fullmatch(value) is not None


def assign_uuid(draft: Draft, update: JsonObject) -> None:
    """Set the uuid of a new table. Setting the same uuid again, in any letter case, changes nothing."""
    uuid = text(update, "uuid")
    if not is_uuid(uuid):
        raise Invalid(f"uuid must be a UUID, not {preview(uuid)}")
    known = draft.document.get("table-uuid")
    if draft.base is None or known is None:
        draft.document["table-uuid"] = uuid
    elif known.lower() != uuid.lower():
        raise Invalid(f"Cannot reassign uuid: the table has {known}")


def upgrade_format_version(draft: Draft, update: JsonObject) -> None:
    upgrade(draft, integer(update, "format-version", low=FORMAT_VERSION_MIN, high=INT_MAX))


def upgrade(draft: Draft, version: int) -> None:
    """Upgrade the format version. Snapshots are unchanged: readers can read those of earlier versions."""
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
    """The location without trailing slashes, as Java stores it; the slashes of "file:///" stay."""
    while location.endswith("/") and not location.endswith("://"):
        location = location[:-1]
    return location


def set_properties(draft: Draft, update: JsonObject) -> None:
    """`updated` is the key of old clients. Setting `format-version` upgrades the table, as engines expect."""
    updates = string_map(update, "updates" if "updates" in update else "updated")
    kept = {key: value for key, value in updates.items() if key not in RESERVED}
    if kept:
        draft.map_of("properties").update(kept)
    if FORMAT_VERSION in updates and draft.base is not None:
        upgrade(draft, read_format_version(updates))


def remove_properties(draft: Draft, update: JsonObject) -> None:
    """Remove properties. A missing one is not an error."""
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
        raise Invalid(f"Table property {FORMAT_VERSION} must have integer value, not {preview(value)}")
    version = int(value)
    if not FORMAT_VERSION_MIN <= version <= FORMAT_VERSION_MAX:
        raise Invalid(f"Unsupported format version: v{version} (supported: v{FORMAT_VERSION_MAX})")
    return version


def new_table_properties(given: dict[str, str], version: int) -> dict[str, str]:
    """The properties of a new table: the defaults for new tables, and the client's properties that are
    stored.
    """
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


def add_schema(draft: Draft, update: JsonObject) -> None:
    """Reuse an equal schema. A new one gets the next id, regardless of the client's id."""
    given = mapping(update, "schema")
    index = index_schema(given, draft.format_version)
    schema = tidy_schema(given, index)
    document = draft.document
    document["last-column-id"] = max(document["last-column-id"], index.highest_id)
    known = next((known for known in document["schemas"] if same_schema(known, schema)), None)
    if known is not None:
        draft.schemas.add(given.get("schema-id"), known["schema-id"])
    else:
        id_ = _next_schema_id(draft)
        draft.list_of("schemas").append(schema | {"schema-id": id_})
        draft.schemas.add(given.get("schema-id"), id_)
    if document["current-schema-id"] is None:
        draft.forget_schema_index()


def _next_schema_id(draft: Draft) -> int:
    """The next schema id: above all known ids, including those of removed schemas that snapshots refer to."""
    document = draft.document
    used = [schema["schema-id"] for schema in document["schemas"]]
    used += [snapshot.get("schema-id") or 0 for snapshot in document["snapshots"]]
    id_ = max(used, default=-1) + 1
    if id_ > INT_MAX:
        raise Invalid("no schema id is left")
    return id_


def set_current_schema(draft: Draft, update: JsonObject) -> None:
    id_ = draft.schemas.resolve(integer(update, "schema-id", low=LAST_ADDED), "schema")
    if draft.document["current-schema-id"] == id_:
        return
    if with_id(draft.document["schemas"], "schema-id", id_) is None:
        raise Invalid(f"Cannot set current schema to unknown schema: {id_}")
    draft.document["current-schema-id"] = id_
    draft.forget_schema_index()
    draft.layout_changed = True


def remove_schemas(draft: Draft, update: JsonObject) -> None:
    ids = set(integers(update, "schema-ids"))
    document = draft.document
    if document["current-schema-id"] in ids:
        raise Invalid("Cannot remove the current schema")
    draft.put_list("schemas", [schema for schema in document["schemas"] if schema["schema-id"] not in ids])
    draft.schemas.forget(ids)
    if document["current-schema-id"] is None:
        draft.forget_schema_index()


def set_statistics(draft: Draft, update: JsonObject) -> None:
    """Set the statistics file of a snapshot. The deprecated `snapshot-id` beside the file is ignored."""
    at = STATISTICS
    file = mapping(update, STATISTICS)
    _check_file(file, at)
    long(file, "file-footer-size-in-bytes", at)
    blobs = [
        _read_blob(blob, f"{at}.blob-metadata[{i}]")
        for i, blob in enumerate(objects(file, "blob-metadata", at))
    ]
    if blobs != file["blob-metadata"]:
        file = file | {"blob-metadata": blobs}
    _put(draft, STATISTICS, file)


def set_partition_statistics(draft: Draft, update: JsonObject) -> None:
    file = mapping(update, PARTITION_STATISTICS)
    _check_file(file, PARTITION_STATISTICS)
    _put(draft, PARTITION_STATISTICS, file)


def remove_statistics(draft: Draft, update: JsonObject) -> None:
    _remove(draft, STATISTICS, long(update, "snapshot-id", low=-LONG_MAX - 1))


def remove_partition_statistics(draft: Draft, update: JsonObject) -> None:
    _remove(draft, PARTITION_STATISTICS, long(update, "snapshot-id", low=-LONG_MAX - 1))


def _check_file(file: JsonObject, at: str) -> None:
    long(file, "snapshot-id", at)
    text(file, "statistics-path", at)
    long(file, "file-size-in-bytes", at)


def _read_blob(blob: JsonObject, at: str) -> JsonObject:
    text(blob, "type", at)
    long(blob, "snapshot-id", at)
    long(blob, "sequence-number", at)
    integers(blob, "fields", at)
    blob = without_nulls(blob, "properties")
    if "properties" in blob:
        string_map(blob, "properties", at)
    return blob


def _put(draft: Draft, key: str, file: JsonObject) -> None:
    """Replace the earlier file of the same snapshot, or append."""
    files = draft.list_of(key)
    for index, known in enumerate(files):
        if known["snapshot-id"] == file["snapshot-id"]:
            files[index] = file
            return
    files.append(file)


def _remove(draft: Draft, key: str, snapshot_id: int) -> None:
    files = draft.document.get(key) or []
    kept = [file for file in files if file["snapshot-id"] != snapshot_id]
    if len(kept) < len(files):
        draft.put_list(key, kept)


def add_encryption_key(draft: Draft, update: JsonObject) -> None:
    """Add an encryption key. An existing key is not changed."""
    at = "encryption-key"
    if draft.format_version < 3:
        raise Invalid("encryption keys are not supported until v3")
    key = without_nulls(mapping(update, at), "encrypted-by-id", "properties")
    id_ = text(key, "key-id", at)
    try:
        base64.b64decode(text(key, "encrypted-key-metadata", at), validate=True)
    except (binascii.Error, ValueError):
        raise Invalid(f"{at}.encrypted-key-metadata must be base64") from None
    if "encrypted-by-id" in key:
        text(key, "encrypted-by-id", at)
    if "properties" in key:
        string_map(key, "properties", at)
    known = draft.document.get(KEYS) or []
    if all(entry["key-id"] != id_ for entry in known):
        draft.list_of(KEYS).append(key)


def remove_encryption_key(draft: Draft, update: JsonObject) -> None:
    id_ = text(update, "key-id")
    known = draft.document.get(KEYS) or []
    kept = [entry for entry in known if entry["key-id"] != id_]
    if len(kept) == len(known):
        return
    if kept:
        draft.put_list(KEYS, kept)
    else:
        draft.drop(KEYS)
