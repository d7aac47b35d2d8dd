"""The metadata document of a table: a plain dict as parsed from JSON.

A document is never changed in place: a change creates a new dict that shares all unchanged parts with the old
one. In v1, writers could omit much that clients now need; `with_defaults` derives it, and returns the
document itself if nothing is missing. `summarize` returns what the history stores of a version.

A metadata file contains the document as text. Names, encoding and outdated files are at the end.
"""

from __future__ import annotations

import gzip
import io
import re
import uuid
from collections.abc import Iterable
from operator import itemgetter
from typing import Any

from catalog.errors import Invalid, TooLarge
from catalog.locations import Location
from catalog.metadata.validation import METADATA_LOG_ENTRIES_DEFAULT, JsonObject

_INTEGER = re.compile(r"[+-]?\d{1,10}", re.ASCII)
_NUMBERED = re.compile(r"/(\d{1,9})-[^/]*$").search
Metadata = dict[str, Any]
READ_BYTES_MAX = 256 * 1024 * 1024
GZIP_CODEC = "gzip"
MAIN = "main"
NO_SNAPSHOT = -1
PARTITION_FIELD_ID_START = 1000
UNSORTED_ORDER_ID = 0
snapshot_id_of = itemgetter("snapshot-id")
PREVIOUS_VERSIONS_MAX = "write.metadata.previous-versions-max"
DELETE_AFTER_COMMIT = "write.metadata.delete-after-commit.enabled"
CURRENT_KEYS = (
    "current-snapshot-id",
    "current-schema-id",
    "default-spec-id",
    "default-sort-order-id",
    "last-updated-ms",
)
SUMMARY_KEYS = (*CURRENT_KEYS, "refs", "properties")
_LISTS = ("snapshots", "statistics", "partition-statistics", "snapshot-log", "metadata-log")
_KEYS = (
    "table-uuid",
    "schemas",
    "current-schema-id",
    "partition-specs",
    "default-spec-id",
    "last-partition-id",
    "sort-orders",
    "default-sort-order-id",
    "properties",
    "refs",
    *_LISTS,
)


def current_snapshot_id(metadata: Metadata) -> int | None:
    """The current snapshot id. Null, absent and -1 all mean that there is none."""
    value: int | None = metadata.get("current-snapshot-id")
    return None if value == NO_SNAPSHOT else value


def with_id(entries: list[dict[str, Any]], key: str, id_: int | None) -> dict[str, Any] | None:
    return next((entry for entry in entries if entry.get(key) == id_), None)


def set_current_snapshot_id(document: Metadata, snapshot_id: int | None) -> None:
    """Set the current snapshot id of a document that the caller owns.

    "None" is -1 in v1 and v2, as Java writes and old readers expect. From v3 on the key is omitted: it is
    optional in the spec, -1 is no longer written, and the REST specification does not allow null.
    """
    if snapshot_id is not None:
        document["current-snapshot-id"] = snapshot_id
    elif document["format-version"] < 3:
        document["current-snapshot-id"] = NO_SNAPSHOT
    else:
        document.pop("current-snapshot-id", None)


def highest_field_id(fields: Iterable[JsonObject]) -> int:
    return max((field["field-id"] for field in fields), default=PARTITION_FIELD_ID_START - 1)


def previous_versions_max(properties: dict[str, str]) -> int:
    """The length limit of the metadata log: at least one. The default if the value is not a number."""
    value = properties.get(PREVIOUS_VERSIONS_MAX)
    if not isinstance(value, str) or _INTEGER.fullmatch(value) is None:
        return METADATA_LOG_ENTRIES_DEFAULT
    return max(1, int(value))


def deletes_old_metadata(properties: dict[str, str]) -> bool:
    """Whether metadata files that are removed from the log are deleted."""
    return str(properties.get(DELETE_AFTER_COMMIT, "false")).lower() == "true"


def summarize(metadata: dict[str, Any]) -> dict[str, Any]:
    """What the history stores of a version to rebuild it: the current schema, spec, snapshot and so on."""
    kept = {key: metadata[key] for key in CURRENT_KEYS if metadata.get(key) is not None}
    properties = metadata.get("properties") or {}
    if deletes_old_metadata(properties):
        kept["properties"] = properties
    refs = metadata.get("refs") or {}
    if len(refs) > 1 or (refs and "main" not in refs):
        kept["refs"] = refs
    return kept


def update_summary(detail: dict[str, Any], metadata: dict[str, Any]) -> dict[str, Any]:
    """The detail with the summary of this version in place of an earlier one."""
    return {key: value for key, value in detail.items() if key not in SUMMARY_KEYS} | summarize(metadata)


def with_defaults(metadata: Metadata, *, table_uuid: str | None = None) -> Metadata:
    """The document with default values. `table_uuid` is used for a table without a uuid (old v1 tables)."""
    if all(metadata.get(key) is not None for key in _KEYS):
        return metadata
    document = {key: value for key, value in metadata.items() if value is not None or key not in _KEYS}
    if table_uuid is not None:
        document.setdefault("table-uuid", table_uuid)
    if document.get("format-version") == 1:
        _complete_schemas(document)
        _complete_specs(document)
        _complete_orders(document)
    document.setdefault("properties", {})
    for key in _LISTS:
        document.setdefault(key, [])
    _complete_refs(document)
    return document if document != metadata else metadata


def _complete_schemas(document: Metadata) -> None:
    if "schemas" not in document and isinstance(document.get("schema"), dict):
        schema = {"type": "struct", "schema-id": 0} | document["schema"]
        document["schemas"] = [schema]
        document["current-schema-id"] = schema["schema-id"]


def _complete_specs(document: Metadata) -> None:
    if "partition-specs" not in document and "partition-spec" in document:
        document["partition-specs"] = [{"spec-id": 0, "fields": document["partition-spec"]}]
        document["default-spec-id"] = 0
    if not _are_spec_shaped(document.get("partition-specs")):
        return
    specs = [
        spec
        | {
            "fields": [
                {"field-id": PARTITION_FIELD_ID_START + i} | field for i, field in enumerate(spec["fields"])
            ]
        }
        for spec in document["partition-specs"]
    ]
    if specs != document["partition-specs"]:
        document["partition-specs"] = specs
    fields = [field for spec in specs for field in spec["fields"]]
    if all(isinstance(field["field-id"], int) for field in fields):
        document.setdefault("last-partition-id", highest_field_id(fields))


def _are_spec_shaped(specs: object) -> bool:
    """Malformed documents are returned unchanged; `invariants` reports them."""
    return isinstance(specs, list) and all(
        isinstance(spec, dict)
        and isinstance(spec.get("fields"), list)
        and all(isinstance(field, dict) for field in spec["fields"])
        for spec in specs
    )


def _complete_orders(document: Metadata) -> None:
    document.setdefault("sort-orders", [{"order-id": UNSORTED_ORDER_ID, "fields": []}])
    document.setdefault("default-sort-order-id", UNSORTED_ORDER_ID)


def _complete_refs(document: Metadata) -> None:
    current = current_snapshot_id(document)
    if current is None and isinstance(document.get("format-version"), int):
        set_current_snapshot_id(document, None)
    if "refs" not in document:
        document["refs"] = {} if current is None else {MAIN: {"snapshot-id": current, "type": "branch"}}


# Metadata files of tables and views


def next_metadata_location(metadata: dict[str, Any], previous: str | None) -> str:
    """A new file name in the table's metadata folder, with the number after that of the previous file."""
    properties = metadata.get("properties") or {}
    folder = properties.get("write.metadata.path") or metadata["location"].rstrip("/") + "/metadata"
    found = _NUMBERED(previous) if previous else None
    number = int(found[1]) + 1 if found else 0
    suffix = ".gz.metadata.json" if is_gzipped(properties) else ".metadata.json"
    return f"{folder.rstrip('/')}/{number:05d}-{uuid.uuid4()}{suffix}"


def is_gzipped(properties: dict[str, str]) -> bool:
    return str(properties.get("write.metadata.compression-codec", "none")).lower() == GZIP_CODEC


def encode_metadata(location: str, text: bytes) -> bytes:
    """The content of the file: gzipped if its name says so."""
    return gzip.compress(text, 6) if ".gz.metadata.json" in location or location.endswith(".gz") else text


def decode_metadata(location: str, data: bytes) -> bytes:
    """The JSON text of a metadata file. Gzip is detected by its first bytes, and its expansion is limited."""
    if data[:2] != b"\x1f\x8b":
        return data
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as unzipped:
            text = unzipped.read(READ_BYTES_MAX + 1)
    except (OSError, EOFError) as error:
        raise Invalid(f"The metadata file {location} is not a whole gzip file") from error
    if len(text) > READ_BYTES_MAX:
        raise TooLarge(f"The metadata file {location} expands to more than {READ_BYTES_MAX} bytes")
    return text


def outdated_files(before: dict[str, Any] | None, after: dict[str, Any]) -> list[str]:
    """Metadata files that were removed from the log, if the table has them deleted."""
    properties = after.get("properties") or {}
    if before is None or not deletes_old_metadata(properties):
        return []
    kept = {entry["metadata-file"] for entry in after.get("metadata-log") or []}
    had = [entry["metadata-file"] for entry in before.get("metadata-log") or []]
    own = [Location.parse(after["location"]), Location.parse(metadata_folder(after))]
    # The log of a registered file may contain files of other tables: these are not deleted.
    return [
        location
        for location in had
        if location not in kept and any(Location.parse_file(location).is_inside(folder) for folder in own)
    ]


def metadata_folder(metadata: dict[str, Any]) -> str:
    return str(Location.parse(next_metadata_location(metadata, None).rpartition("/")[0]))
