"""The draft of a new metadata document, which `apply` changes.

`Draft.document` is a shallow copy of the base. `list_of` and `map_of` copy a part before its first change, so
the base is never changed and unchanged parts are shared.
"""

from __future__ import annotations

from typing import Any

from catalog.errors import Invalid
from catalog.metadata.document import (
    PARTITION_FIELD_ID_START,
    Metadata,
    set_current_snapshot_id,
    snapshot_id_of,
    with_id,
)
from catalog.metadata.schemas import SchemaIndex, index_schema

LAST_ADDED = -1


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
            self.document[key] = list(self.document.get(key) or ())
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
            return id_ in map(snapshot_id_of, self.document["snapshots"])
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
