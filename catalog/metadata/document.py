"""The metadata document of a table: a plain dict as parsed from JSON, and the draft of a new one.

A document is never changed in place: a change creates a new dict that shares all unchanged parts with the old
one. `Draft.document` is a shallow copy of the base, which `apply` changes. `list_of` and `map_of` copy a part
before its first change.

In v1, writers could omit much that clients now need; `with_defaults` derives it, and returns the document
itself if nothing is missing. `summarize` returns what the history stores of a version.
"""

from __future__ import annotations

import gzip
import io
import re
from collections.abc import Iterable
from operator import itemgetter
from typing import Any

from catalog.errors import Invalid, TooLarge
from catalog.metadata.schemas import SchemaIndex, index_schema
from catalog.metadata.validation import METADATA_LOG_ENTRIES_DEFAULT, JsonObject

_INTEGER = re.compile(r"[+-]?\d{1,10}", re.ASCII)
Metadata = dict[str, Any]
READ_BYTES_MAX = 256 * 1024 * 1024
GZIP_CODEC = "gzip"
MAIN = "main"
NO_SNAPSHOT = -1
PARTITION_FIELD_ID_START = 1000
UNSORTED_ORDER_ID = 0
LAST_ADDED = -1
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


def has_snapshot(snapshots: list[Any], id_: int) -> bool:
    """Whether a list of snapshots has this id. Lists of cached documents have an index (catalog/fast)."""
    find = getattr(snapshots, "has_id", None)
    return bool(find(id_)) if find is not None else id_ in map(snapshot_id_of, snapshots)


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


class Added:
    """The schemas, specs or sort orders that this request added: the meaning of -1, and the ids they got."""

    __slots__ = ("_stored_ids", "last")

    def __init__(self) -> None:
        self.last: int | None = None
        self._stored_ids: dict[int, int] = {}

    def add(self, given: object, stored: int) -> None:
        self.last = stored
        if isinstance(given, int):
            self._stored_ids[given] = stored

    def forget(self, ids: set[int]) -> None:
        if self.last in ids:
            self.last = None

    def resolve(self, id_: int, what: str) -> int:
        """The stored id for the id that the client used. -1 is the last one added."""
        if id_ != LAST_ADDED:
            return self._stored_ids.get(id_, id_)
        if self.last is None:
            raise Invalid(f"Cannot set last added {what}: no {what} has been added")
        return self.last


class Draft:
    __slots__ = (
        "_index",
        "_owned",
        "_snapshot_ids",
        "base",
        "document",
        "layout_changed",
        "main_added",
        "now_ms",
        "orders",
        "schemas",
        "snapshots_added",
        "snapshots_removed",
        "specs",
    )

    def __init__(self, base: Metadata | None, document: Metadata, now_ms: int) -> None:
        self.base = base
        self.document = document
        self.now_ms = now_ms
        self.schemas = Added()
        self.specs = Added()
        self.orders = Added()
        self.snapshots_added: dict[int, dict[str, Any]] = {}
        # Added snapshots that were set on main. All but the last were never visible.
        self.main_added: set[int] = set()
        self.snapshots_removed = False
        # A schema, spec or order changed, so the defaults must be checked against each other at the end.
        self.layout_changed = base is None
        self._owned: set[str] = set()
        self._snapshot_ids: set[int] | None = None
        self._index: SchemaIndex | None = None

    @classmethod
    def of(cls, base: Metadata, now_ms: int) -> Draft:
        return cls(base, dict(base), now_ms)

    @classmethod
    def empty(cls, format_version: int, now_ms: int) -> Draft:
        document: Metadata = {"format-version": format_version, "table-uuid": None, "location": None}
        if format_version > 1:
            document["last-sequence-number"] = 0
        document |= {
            "last-updated-ms": now_ms,
            "last-column-id": 0,
            "current-schema-id": None,
            "schemas": [],
            "default-spec-id": None,
            "partition-specs": [],
            "last-partition-id": PARTITION_FIELD_ID_START - 1,
            "default-sort-order-id": None,
            "sort-orders": [],
            "properties": {},
        }
        set_current_snapshot_id(document, None)
        if format_version >= 3:
            document["next-row-id"] = 0
        document |= {
            "refs": {},
            "snapshots": [],
            "statistics": [],
            "partition-statistics": [],
            "snapshot-log": [],
            "metadata-log": [],
        }
        return cls(None, document, now_ms)

    @property
    def format_version(self) -> int:
        version: int = self.document["format-version"]
        return version

    def list_of(self, key: str) -> list[Any]:
        if key not in self._owned:
            self._owned.add(key)
            self.document[key] = (self.document.get(key) or []).copy()
        owned: list[Any] = self.document[key]
        return owned

    def map_of(self, key: str) -> dict[str, Any]:
        if key not in self._owned:
            self._owned.add(key)
            self.document[key] = dict(self.document.get(key) or {})
        owned: dict[str, Any] = self.document[key]
        return owned

    def put_list(self, key: str, values: list[Any]) -> None:
        """Replace a list by a new one that the draft owns."""
        self._owned.add(key)
        self.document[key] = values

    def drop(self, key: str) -> None:
        self._owned.discard(key)
        self.document.pop(key, None)

    def has_snapshot(self, id_: int) -> bool:
        """One look through a long list is quicker than a set of its ids; more looks need the set."""
        if self._snapshot_ids is None and not self.snapshots_added:
            return has_snapshot(self.document["snapshots"], id_)
        return id_ in self.snapshot_ids

    @property
    def snapshot_ids(self) -> set[int]:
        if self._snapshot_ids is None:
            self._snapshot_ids = set(map(snapshot_id_of, self.document["snapshots"]))
        return self._snapshot_ids

    def add_snapshot(self, id_: int, snapshot: dict[str, Any]) -> None:
        self.list_of("snapshots").append(snapshot)
        self.snapshots_added[id_] = snapshot
        if self._snapshot_ids is not None:
            self._snapshot_ids.add(id_)

    def forget_snapshot_ids(self) -> None:
        self._snapshot_ids = None

    def current_schema_index(self) -> SchemaIndex:
        """The current schema. While a table is being created and none is set yet, the one just added."""
        if self._index is None:
            id_ = self.document["current-schema-id"]
            schema = with_id(self.document["schemas"], "schema-id", self.schemas.last if id_ is None else id_)
            if schema is None:
                raise Invalid("a schema must be added first")
            self._index = index_schema(schema)
        return self._index

    def forget_schema_index(self) -> None:
        self._index = None


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
