"""One sound request for every operation there is, made against things that are really there.

The list of operations comes from the code that serves them. An operation without a request here fails every
test that asks for one, so a new route cannot be forgotten: it fails closed.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

import httpx
from fastapi import FastAPI

from catalog.api.lake import lake_router
from tests.harness.operations import OPERATIONS
from tests.harness.rest import SCHEMA, Rest, identified

_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Served:
    """An operation: what it is called, how it is reached, what it needs."""

    id: str
    method: str
    path: str
    writes: bool


def _lake() -> list[Served]:
    app = FastAPI()
    app.include_router(lake_router())
    return [
        Served(operation["operationId"], method.upper(), path, method != "get")
        for path, methods in app.openapi()["paths"].items()
        for method, operation in methods.items()
    ]


SPEC = [Served(o.id, o.method, o.path, o.writes) for o in OPERATIONS if o.secured]
LAKE = _lake()
ALL = [*SPEC, *LAKE]
# Those that are about one warehouse; the rest is about the server or about the caller.
OF_A_WAREHOUSE = [
    served
    for served in ALL
    if "{prefix}" in served.path or "{warehouse}" in served.path or served.id == "getConfig"
]
SERVER_WIDE = frozenset({"listWarehouses", "createWarehouse", "dropWarehouse"})


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    body: Any = None
    query: str = ""

    def send(self, http: httpx.Client, **options: Any) -> httpx.Response:
        address = f"{self.path}?{self.query}" if self.query else self.path
        given = {"json": self.body} if self.body is not None else {}
        return http.request(self.method, address, **given, **options)

    def of(self, before: str, after: str) -> Request:
        """The same request about another warehouse."""
        path = self.path.replace(f"/{before}", f"/{after}", 1)
        return replace(self, path=path, query=self.query.replace(before, after))


class Maker:
    """Makes requests about one warehouse; `rest` may do everything there."""

    def __init__(self, rest: Rest) -> None:
        self.rest = rest
        self.warehouse = rest.prefix
        self.namespace = rest.fresh_namespace()
        rest.create(self.namespace, "t")
        rest.ok("POST", rest.namespace_path(self.namespace, "views"), json=view_body("v", self.namespace))

    def request(self, served: Served) -> Request:
        body, query, parts = None, "", {"prefix": self.warehouse, "warehouse": self.warehouse}
        made = MAKERS[served.id](self)
        body, query = made.pop("body", None), made.pop("query", "")
        parts |= {"namespace": self.namespace, "table": "t", "view": "v"} | made
        path = served.path.format(**{name: quote(text, safe="@~") for name, text in parts.items()})
        return Request(served.method, path, body, query)

    # -- things that a request uses up

    def name(self) -> str:
        return f"n{next(_numbers)}"

    def table(self) -> str:
        name = self.name()
        self.rest.create(self.namespace, name)
        return name

    def view(self) -> str:
        name = self.name()
        path = self.rest.namespace_path(self.namespace, "views")
        self.rest.ok("POST", path, json=view_body(name, self.namespace))
        return name

    def metadata_file(self, kind: str = "tables") -> str:
        """The metadata file of something whose name is gone."""
        name = self.table() if kind == "tables" else self.view()
        path = self.rest.namespace_path(self.namespace, kind, name)
        location: str = self.rest.ok("GET", path)["metadata-location"]
        self.rest.ok("DELETE", path)
        return location

    def dropped(self) -> str:
        name = self.table()
        self.rest.ok("DELETE", self.rest.table_path(self.namespace, name))
        listed = self.rest.lake("GET", f"{self.warehouse}/dropped").json()["dropped"]
        found: str = next(entry["id"] for entry in listed if entry["name"] == name)
        return found

    def transaction(self) -> str:
        name = self.name()
        answer = self.rest.lake("POST", f"{self.warehouse}/transactions", json={"name": name})
        assert answer.status_code == 200, answer.text
        return name

    def rename(self, name: str) -> dict[str, Any]:
        return {
            "source": {"namespace": [self.namespace], "name": name},
            "destination": {"namespace": [self.namespace], "name": self.name()},
        }


def view_body(name: str, namespace: str) -> dict[str, Any]:
    version = {
        "version-id": 1,
        "timestamp-ms": 1,
        "schema-id": 0,
        "summary": {},
        "representations": [{"type": "sql", "sql": "SELECT 1", "dialect": "spark"}],
        "default-namespace": [namespace],
    }
    return {"name": name, "schema": SCHEMA, "view-version": version, "properties": {}}


def _properties() -> dict[str, Any]:
    update = {"action": "set-properties", "updates": {"n": str(next(_numbers))}}
    return {"requirements": [], "updates": [update]}


def _changes(maker: Maker) -> dict[str, Any]:
    return {"table-changes": [identified(maker.namespace, "t", _properties())]}


def _fresh_namespace(maker: Maker) -> dict[str, Any]:
    return {"namespace": maker.rest.fresh_namespace()}


MAKERS: dict[str, Callable[[Maker], dict[str, Any]]] = {
    "getConfig": lambda m: {"query": f"warehouse={m.warehouse}"},
    "listNamespaces": lambda m: {},
    "createNamespace": lambda m: {"body": {"namespace": [m.name()]}},
    "loadNamespaceMetadata": lambda m: {},
    "namespaceExists": lambda m: {},
    "dropNamespace": _fresh_namespace,
    "updateProperties": lambda m: {"body": {"updates": {"n": str(next(_numbers))}, "removals": []}},
    "listTables": lambda m: {},
    "createTable": lambda m: {"body": {"name": m.name(), "schema": SCHEMA}},
    "registerTable": lambda m: {"body": {"name": m.name(), "metadata-location": m.metadata_file()}},
    "loadTable": lambda m: {},
    "updateTable": lambda m: {"body": _properties()},
    "dropTable": lambda m: {"table": m.table()},
    "tableExists": lambda m: {},
    "unregisterTable": lambda m: {"table": m.table()},
    "renameTable": lambda m: {"body": m.rename(m.table())},
    "reportMetrics": lambda m: {"body": {"report-type": "scan-report", "table-name": "t"}},
    "commitTransaction": lambda m: {"body": _changes(m)},
    "listViews": lambda m: {},
    "createView": lambda m: {"body": view_body(m.name(), m.namespace)},
    "loadView": lambda m: {},
    "replaceView": lambda m: {"body": {"updates": _properties()["updates"]}},
    "dropView": lambda m: {"view": m.view()},
    "viewExists": lambda m: {},
    "renameView": lambda m: {"body": m.rename(m.view())},
    "registerView": lambda m: {"body": {"name": m.name(), "metadata-location": m.metadata_file("views")}},
    # Calve's own
    "listWarehouses": lambda m: {},
    "createWarehouse": lambda m: {"body": {"name": f"w{uuid.uuid4().hex}"}},
    "loadWarehouse": lambda m: {},
    "dropWarehouse": lambda m: {},
    "listEvents": lambda m: {},
    "loadTableHistory": lambda m: {},
    "openTransaction": lambda m: {"body": {"name": m.name()}},
    "listTransactions": lambda m: {},
    "loadTransaction": lambda m: {"name": m.transaction()},
    "extendTransaction": lambda m: {"name": m.transaction(), "body": {"ttl-s": 60}},
    "publishTransaction": lambda m: {"name": m.transaction()},
    "abortTransaction": lambda m: {"name": m.transaction()},
    "listDropped": lambda m: {},
    "undrop": lambda m: {"dropped_id": m.dropped(), "body": {}},
    "loadProtection": lambda m: {},
    "setProtection": lambda m: {"body": {"protected": False}},
    "listReports": lambda m: {},
}
