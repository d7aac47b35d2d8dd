"""Every way by which a location comes in, each as one request with the location in it.

A way is called with the lake and any text; with a good place below the root it must succeed, which shows that
a refusal of a bad one is about the place and about nothing else.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
import orjson

from catalog.locations import Location
from tests.harness.rest import SCHEMA, Rest, identified, snapshot
from tests.security.recorded_server import RecordedServer

JsonObject = dict[str, Any]
OTHER_PATH_KEYS = (
    "write.data.path",
    "write.object-storage.path",
    "write.folder-storage.path",
    "calve.archive.path",
    "Write.Data.Path",
    "WRITE.METADATA.PATH",
    "write.Object-Storage.path",
)
_numbers = itertools.count()


class Lake:
    """A namespace with a table, an old table and a view on a recorded server; and an open transaction."""

    def __init__(self, server: RecordedServer) -> None:
        self.server = server
        self.root = server.root
        self.rest = Rest(server.url)
        self.namespace = self.rest.fresh_namespace()
        self.table = self.rest.create(self.namespace, "t")["metadata"]
        self.table = self.rest.append(self.namespace, "t")["metadata"]
        self.old = self.rest.create(self.namespace, "old", properties={"format-version": "1"})["metadata"]
        self.view = self.rest.ok("POST", self.views, json=self.view_body("v"))["metadata"]
        self.inside = self.rest.open_transaction(f"tx{next(_numbers)}")

    def close(self) -> None:
        self.rest.http.close()
        self.inside.http.close()

    @property
    def views(self) -> str:
        return self.rest.namespace_path(self.namespace, "views")

    def fresh(self) -> str:
        return f"n{next(_numbers)}"

    def good(self) -> str:
        """A place below the root that nobody has."""
        return f"{self.root}/good-{uuid.uuid4().hex}/x"

    def view_body(self, name: str, **more: Any) -> JsonObject:
        version = {
            "version-id": 1,
            "timestamp-ms": 1,
            "schema-id": 0,
            "summary": {},
            "representations": [{"type": "sql", "sql": "SELECT 1", "dialect": "spark"}],
            "default-namespace": [self.namespace],
        }
        return {"name": name, "schema": SCHEMA, "view-version": version, "properties": {}, **more}

    def commit(self, *updates: JsonObject, table: str = "t", rest: Rest | None = None) -> httpx.Response:
        return (rest or self.rest).commit(
            self.namespace, table, {"requirements": [], "updates": list(updates)}
        )

    def transact(self, *updates: JsonObject) -> httpx.Response:
        change = identified(self.namespace, "t", {"requirements": [], "updates": list(updates)})
        return self.rest.call("POST", self.rest.path("transactions/commit"), json={"table-changes": [change]})

    def commit_staged(self, *more: JsonObject, location: Any = None) -> httpx.Response:
        """The commit that makes a table which was only staged before."""
        updates = [
            {"action": "assign-uuid", "uuid": str(uuid.uuid4())},
            {"action": "upgrade-format-version", "format-version": 2},
            {"action": "add-schema", "schema": SCHEMA, "last-column-id": 2},
            {"action": "set-current-schema", "schema-id": -1},
            {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
            {"action": "set-default-spec", "spec-id": -1},
            {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
            {"action": "set-default-sort-order", "sort-order-id": -1},
            {"action": "set-location", "location": self.good() if location is None else location},
            *more,
        ]
        body = {"requirements": [{"type": "assert-create"}], "updates": updates}
        return self.rest.commit(self.namespace, self.fresh(), body)

    def create(self, rest: Rest | None = None, /, **more: Any) -> httpx.Response:
        rest = rest or self.rest
        body = {"name": self.fresh(), "schema": SCHEMA, **more}
        return rest.call("POST", rest.namespace_path(self.namespace, "tables"), json=body)

    def register(self, place: Any, *, kind: str = "register", **more: Any) -> httpx.Response:
        body = {"name": self.fresh(), "metadata-location": place, **more}
        return self.rest.call("POST", self.rest.namespace_path(self.namespace, kind), json=body)

    def plant(self, document: JsonObject, place: str | None = None) -> str:
        """A metadata file that somebody put into the warehouse without asking the catalog."""
        place = place or f"{self.root}/planted/{uuid.uuid4().hex}.metadata.json"
        self.server.files.held[Location.parse_file(place).canonical] = orjson.dumps(document)
        return place

    def document(self, base: JsonObject | None = None, **changes: Any) -> JsonObject:
        """A table's metadata of its own, with parts replaced (`_` for `-`)."""
        base = base or self.table
        own = {"table-uuid": str(uuid.uuid4()), "location": self.good(), "snapshots": [], "refs": {}}
        own |= {"snapshot-log": [], "metadata-log": []}
        kept = {key: value for key, value in base.items() if key != "current-snapshot-id"}
        return kept | own | {key.replace("_", "-"): value for key, value in changes.items()}

    def view_document(self, **changes: Any) -> JsonObject:
        view: JsonObject = self.view
        return view | {"view-uuid": str(uuid.uuid4()), "location": self.good()} | changes


Way = Callable[[Lake, Any], httpx.Response]


@dataclass(frozen=True, slots=True)
class EntryPoint:
    label: str
    send: Way
    is_file: bool = False  # the place of one file, in which `%` and `*` are ordinary characters
    reads: bool = False  # the place stands inside a metadata file, which must be read first


# -- one level of indirection for each kind of update


def _set_location(place: Any, action: str = "set-location") -> JsonObject:
    return {"action": action, "location": place}


def _set_property(key: str, place: Any, field: str = "updates", action: str = "set-properties") -> JsonObject:
    return {"action": action, field: {key: place}}


def _add_snapshot(lake: Lake, place: Any, action: str = "add-snapshot") -> JsonObject:
    # Without a parent its sequence number is not compared, so that many may follow each other.
    added = snapshot(lake.table) | {"manifest-list": place}
    return {"action": action, "snapshot": {k: v for k, v in added.items() if k != "parent-snapshot-id"}}


def _old_snapshot(lake: Lake, place: Any) -> JsonObject:
    added = snapshot(lake.old) | {"manifests": [place]}
    unknown = ("manifest-list", "sequence-number")
    return {"action": "add-snapshot", "snapshot": {k: v for k, v in added.items() if k not in unknown}}


def _statistics_file(lake: Lake, place: Any) -> JsonObject:
    return {
        "snapshot-id": lake.table["current-snapshot-id"],
        "statistics-path": place,
        "file-size-in-bytes": 1,
        "file-footer-size-in-bytes": 1,
        "blob-metadata": [],
    }


def _set_statistics(lake: Lake, place: Any, action: str = "set-statistics") -> JsonObject:
    return {"action": action, "statistics": _statistics_file(lake, place)}


def _set_partition_statistics(lake: Lake, place: Any, action: str = "set-partition-statistics") -> JsonObject:
    return {"action": action, "partition-statistics": _statistics_file(lake, place)}


def _registered(lake: Lake, document: JsonObject, **more: Any) -> httpx.Response:
    return lake.register(lake.plant(document), **more)


def _registered_snapshot(lake: Lake, **changes: Any) -> httpx.Response:
    added = snapshot(lake.table) | {key.replace("_", "-"): value for key, value in changes.items()}
    added.pop("parent-snapshot-id", None)
    return _registered(lake, lake.document(snapshots=[added], last_sequence_number=added["sequence-number"]))


def _registered_old(lake: Lake, place: Any) -> httpx.Response:
    added = _old_snapshot(lake, place)["snapshot"]
    return _registered(lake, lake.document(lake.old, snapshots=[added]))


# -- the table of them

_CREATES = [
    EntryPoint("create", lambda lake, place: lake.create(location=place)),
    EntryPoint("stage", lambda lake, place: lake.create(location=place, **{"stage-create": True})),
    EntryPoint("create in a transaction", lambda lake, place: lake.create(lake.inside, location=place)),
    EntryPoint("commit of a staged create", lambda lake, place: lake.commit_staged(location=place)),
]
_COMMITS = [
    EntryPoint("set-location", lambda lake, place: lake.commit(_set_location(place))),
    EntryPoint("SET-LOCATION", lambda lake, place: lake.commit(_set_location(place, "SET-LOCATION"))),
    EntryPoint(
        "set-location in transactions/commit", lambda lake, place: lake.transact(_set_location(place))
    ),
    EntryPoint(
        "Set-Location in transactions/commit",
        lambda lake, place: lake.transact(_set_location(place, "Set-Location")),
    ),
    EntryPoint(
        "set-location in a transaction",
        lambda lake, place: lake.commit(_set_location(place), rest=lake.inside),
    ),
]
_FILES = [
    EntryPoint("manifest-list", lambda lake, place: lake.commit(_add_snapshot(lake, place)), is_file=True),
    EntryPoint(
        "manifest-list of ADD-SNAPSHOT",
        lambda lake, place: lake.commit(_add_snapshot(lake, place, "ADD-SNAPSHOT")),
        is_file=True,
    ),
    EntryPoint(
        "manifest-list in transactions/commit",
        lambda lake, place: lake.transact(_add_snapshot(lake, place)),
        is_file=True,
    ),
    EntryPoint(
        "manifest-list in the commit of a staged create",
        lambda lake, place: lake.commit_staged(_add_snapshot(lake, place)),
        is_file=True,
    ),
    EntryPoint(
        "manifests of v1",
        lambda lake, place: lake.commit(_old_snapshot(lake, place), table="old"),
        is_file=True,
    ),
    EntryPoint("set-statistics", lambda lake, place: lake.commit(_set_statistics(lake, place)), is_file=True),
    EntryPoint(
        "SET-STATISTICS",
        lambda lake, place: lake.commit(_set_statistics(lake, place, "SET-STATISTICS")),
        is_file=True,
    ),
    EntryPoint(
        "set-statistics in transactions/commit",
        lambda lake, place: lake.transact(_set_statistics(lake, place)),
        is_file=True,
    ),
    EntryPoint(
        "set-partition-statistics",
        lambda lake, place: lake.commit(_set_partition_statistics(lake, place)),
        is_file=True,
    ),
    EntryPoint(
        "set-partition-statistics in transactions/commit",
        lambda lake, place: lake.transact(_set_partition_statistics(lake, place)),
        is_file=True,
    ),
]


def _property_ways(key: str) -> list[EntryPoint]:
    return [
        EntryPoint(f"create with {key}", lambda lake, place: lake.create(properties={key: place})),
        EntryPoint(
            f"stage with {key}",
            lambda lake, place: lake.create(properties={key: place}, **{"stage-create": True}),
        ),
        EntryPoint(
            f"staged commit with {key}", lambda lake, place: lake.commit_staged(_set_property(key, place))
        ),
        EntryPoint(f"set {key}", lambda lake, place: lake.commit(_set_property(key, place))),
        EntryPoint(
            f"SET-PROPERTIES {key}",
            lambda lake, place: lake.commit(_set_property(key, place, action="SET-PROPERTIES")),
        ),
        EntryPoint(
            f"set {key} by the field of old clients",
            lambda lake, place: lake.commit(_set_property(key, place, "updated")),
        ),
        EntryPoint(
            f"set {key} in transactions/commit", lambda lake, place: lake.transact(_set_property(key, place))
        ),
        EntryPoint(
            f"set {key} in transactions/commit by the field of old clients",
            lambda lake, place: lake.transact(_set_property(key, place, "updated")),
        ),
        EntryPoint(
            f"create a view with {key}",
            lambda lake, place: lake.rest.call(
                "POST", lake.views, json=lake.view_body(lake.fresh(), properties={key: place})
            ),
        ),
        EntryPoint(f"set {key} of a view", lambda lake, place: _replaced(lake, _set_property(key, place))),
        EntryPoint(
            f"register a table with {key}",
            lambda lake, place: _registered(lake, lake.document(properties={key: place})),
            reads=True,
        ),
        EntryPoint(
            f"register a view with {key}",
            lambda lake, place: _registered(
                lake, lake.view_document(properties={key: place}), kind="register-view"
            ),
            reads=True,
        ),
    ]


def _replaced(lake: Lake, *updates: JsonObject) -> httpx.Response:
    return lake.rest.call("POST", f"{lake.views}/v", json={"updates": list(updates)})


def _namespace(lake: Lake, key: str, place: Any) -> httpx.Response:
    body = {"namespace": [lake.fresh()], "properties": {key: place}}
    return lake.rest.call("POST", lake.rest.path("namespaces"), json=body)


def _namespace_property(lake: Lake, key: str, place: Any) -> httpx.Response:
    path = lake.rest.namespace_path(lake.namespace, "properties")
    return lake.rest.call("POST", path, json={"updates": {key: place}})


_NAMESPACES = [
    EntryPoint("namespace", lambda lake, place: _namespace(lake, "location", place)),
    EntryPoint("namespace, another case", lambda lake, place: _namespace(lake, "LOCATION", place)),
    EntryPoint("namespace property", lambda lake, place: _namespace_property(lake, "location", place)),
    EntryPoint(
        "namespace property, another case", lambda lake, place: _namespace_property(lake, "Location", place)
    ),
]
_VIEWS = [
    EntryPoint(
        "create a view",
        lambda lake, place: lake.rest.call(
            "POST", lake.views, json=lake.view_body(lake.fresh(), location=place)
        ),
    ),
    EntryPoint("set-location of a view", lambda lake, place: _replaced(lake, _set_location(place))),
    EntryPoint(
        "register a view whose location",
        lambda lake, place: _registered(lake, lake.view_document(location=place), kind="register-view"),
        reads=True,
    ),
]


def _good_file(lake: Lake, place: Any, document: JsonObject) -> Any:
    """Puts the document at the place if that is one where it may be: then there is something to find."""
    if isinstance(place, str) and place.startswith(f"{lake.root}/good-"):
        lake.plant(document, place)
    return place


_REGISTERS = [
    EntryPoint(
        "register",
        lambda lake, place: lake.register(_good_file(lake, place, lake.document())),
        is_file=True,
    ),
    EntryPoint(
        "register with overwrite",
        lambda lake, place: lake.register(_good_file(lake, place, lake.document()), overwrite=True),
        is_file=True,
    ),
    EntryPoint(
        "register-view",
        lambda lake, place: lake.register(
            _good_file(lake, place, lake.view_document()), kind="register-view"
        ),
        is_file=True,
    ),
    EntryPoint(
        "register a table whose location",
        lambda lake, place: _registered(lake, lake.document(location=place)),
        reads=True,
    ),
    EntryPoint(
        "register a table whose manifest-list",
        lambda lake, place: _registered_snapshot(lake, manifest_list=place),
        is_file=True,
        reads=True,
    ),
    EntryPoint("register a v1 table whose manifest", _registered_old, is_file=True, reads=True),
    EntryPoint(
        "register a table whose statistics",
        lambda lake, place: _registered(lake, lake.document(statistics=[_statistics_file(lake, place)])),
        is_file=True,
        reads=True,
    ),
    EntryPoint(
        "register a table whose partition statistics",
        lambda lake, place: _registered(
            lake, lake.document(partition_statistics=[_statistics_file(lake, place)])
        ),
        is_file=True,
        reads=True,
    ),
    EntryPoint(
        "register a table whose metadata log",
        lambda lake, place: _registered(
            lake, lake.document(metadata_log=[{"metadata-file": place, "timestamp-ms": 1}])
        ),
        is_file=True,
        reads=True,
    ),
]

# The property by which the server itself can be led astray stands for the others: they get a smaller corpus.
ENTRY_POINTS: list[EntryPoint] = [
    *_CREATES,
    *_COMMITS,
    *_FILES,
    *_NAMESPACES,
    *_VIEWS,
    *_REGISTERS,
    *_property_ways("write.metadata.path"),
]
OTHER_PROPERTIES: list[EntryPoint] = [way for key in OTHER_PATH_KEYS for way in _property_ways(key)]
