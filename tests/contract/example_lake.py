"""Makes on a server what the examples of `openapi/iceberg-rest.yaml` speak of, and restores it after changes.

The examples name a namespace `sales` with a table `orders`, a view `top_orders`, and two metadata files to
register. They hold constants where a real server has its own values (uuids, locations, times); `translate`
puts those in.
"""

from __future__ import annotations

import time
import uuid
from typing import Any
from urllib.parse import quote

import httpx

PREFIX = "main"
NAMESPACE = "sales"
TABLE = "orders"
VIEW = "top_orders"
EMPTY = "empty"
TRANSACTION = "w1"
DROPPED_ID = "the-dropped-table"
SNAPSHOT_ID = 2748816125037549101

_TABLE_UUID = "0198c5a2-7c3e-7d1a-9b6f-2f4d8e1c0a53"
_VIEW_UUID = "0198c5a2-9e41-7f08-8c2d-61b7a3d5e9f4"
_KEY = "0198c5a2-4d7f-7b92-a1c4-90e3f6d2b815"
_TABLE_LOCATION = "s3://lake/main/sales/orders"
_TABLE_FILE = "s3://lake/main/sales/returns/metadata/00000.metadata.json"
_VIEW_FILE = "s3://lake/main/sales/old_orders/metadata/00000.metadata.json"
_NOW_MS = 1793232000000

_TABLES = f"/namespaces/{NAMESPACE}/tables"
_VIEWS = f"/namespaces/{NAMESPACE}/views"
_SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "order_id", "type": "long", "required": True},
        {"id": 2, "name": "placed_at", "type": "timestamptz", "required": False},
    ],
}
_VERSION = {
    "version-id": 1,
    "timestamp-ms": 1,
    "schema-id": 0,
    "summary": {"engine-name": "spark"},
    "representations": [{"type": "sql", "sql": "SELECT order_id FROM orders", "dialect": "spark"}],
    "default-namespace": [NAMESPACE],
}


class ExampleLake:
    """The state that the examples need, on the server at `url`."""

    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=60)
        self._values: dict[str | int, str | int] = {}
        self._make_namespaces()
        self._make_files()
        self._make_dropped()
        self._make_table()
        self._make_view()
        self._open_transaction()

    def close(self) -> None:
        self._http.close()

    def restore_after(self, operation_id: str) -> None:
        """Back to the beginning after an operation that changed something."""
        match operation_id:
            case "updateTable" | "commitTransaction" | "dropTable" | "unregisterTable":
                self._make_table()
            case "createTable" | "registerTable" | "renameTable" | "setProtection":
                self._make_table()
            case "createView" | "registerView" | "renameView" | "replaceView" | "dropView":
                self._make_view()
            case "createNamespace" | "dropNamespace":
                self._make_namespaces()
            case "publishTransaction" | "abortTransaction":
                self._open_transaction()
            case "undrop":
                self._make_dropped()

    def translate(self, value: Any) -> Any:
        """A copy of an example, or of what was made from one, with the server's own values."""
        if isinstance(value, dict):
            return {key: self.translate(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.translate(item) for item in value]
        if isinstance(value, str) and value.startswith(_TABLE_LOCATION + "/"):
            return f"{self._values[_TABLE_LOCATION]}{value.removeprefix(_TABLE_LOCATION)}"
        if value == _KEY:
            return str(uuid.uuid4())  # or the first answer would be the answer to all
        if value == _NOW_MS:
            return time.time_ns() // 1_000_000
        if isinstance(value, (str, int)) and not isinstance(value, bool):
            return self._values.get(value, value)
        return value

    def _make_namespaces(self) -> None:
        for name in (NAMESPACE, EMPTY):
            self._iceberg("POST", "/namespaces", {"namespace": [name]}, ok=(200, 409))
        for levels in self._iceberg("GET", f"/namespaces?parent={NAMESPACE}")["namespaces"]:
            child = "%1F".join(quote(level, safe="") for level in levels)
            self._iceberg("DELETE", f"/namespaces/{child}", ok=(204,))

    def _listed(self, path: str) -> list[str]:
        return [identifier["name"] for identifier in self._iceberg("GET", path)["identifiers"]]

    def _make_table(self) -> None:
        """No table in `sales` but `orders`, and that as new."""
        for name in self._listed(_TABLES):
            path = f"{_TABLES}/{quote(name, safe='')}"
            self._lake("PUT", f"{path}/protection", {"protected": False})
            # Unregistering leaves the files, and the examples register one of them again.
            self._iceberg("POST", f"{path}/unregister")
        made = self._iceberg("POST", _TABLES, {"name": TABLE, "schema": _SCHEMA})["metadata"]
        self._values[_TABLE_UUID] = made["table-uuid"]
        self._values[_TABLE_LOCATION] = made["location"]
        snapshot = {
            "snapshot-id": SNAPSHOT_ID,
            "sequence-number": 1,
            "timestamp-ms": time.time_ns() // 1_000_000,
            "manifest-list": f"{made['location']}/metadata/snap-1.avro",
            "summary": {"operation": "append"},
            "schema-id": 0,
        }
        branch = {"ref-name": "main", "type": "branch", "snapshot-id": SNAPSHOT_ID}
        updates = [
            {"action": "add-snapshot", "snapshot": snapshot},
            {"action": "set-snapshot-ref", **branch},
        ]
        self._iceberg("POST", f"{_TABLES}/{TABLE}", {"requirements": [], "updates": updates})

    def _make_view(self) -> None:
        """No view in `sales` but `top_orders`, and that as new."""
        for name in self._listed(_VIEWS):
            self._iceberg("DELETE", f"{_VIEWS}/{quote(name, safe='')}", ok=(204,))
        body = {"name": VIEW, "schema": _SCHEMA, "view-version": _VERSION, "properties": {}}
        self._values[_VIEW_UUID] = self._iceberg("POST", _VIEWS, body)["metadata"]["view-uuid"]

    def _make_files(self) -> None:
        """A table and a view that are known only as metadata files."""
        self._iceberg("POST", _TABLES, {"name": "returns", "schema": _SCHEMA})
        left = self._iceberg("POST", f"{_TABLES}/returns/unregister")
        self._values[_TABLE_FILE] = left["metadata-location"]
        body = {"name": "old_orders", "schema": _SCHEMA, "view-version": _VERSION}
        made = self._iceberg("POST", _VIEWS, {**body, "properties": {"gc.enabled": "false"}})
        self._values[_VIEW_FILE] = made["metadata-location"]
        self._iceberg("DELETE", f"{_VIEWS}/old_orders", ok=(204,))

    def _make_dropped(self) -> None:
        name = f"dropped_{uuid.uuid4().hex}"
        self._iceberg("POST", _TABLES, {"name": name, "schema": _SCHEMA})
        self._iceberg("DELETE", f"{_TABLES}/{name}", ok=(204,))
        self._values[DROPPED_ID] = self._lake("GET", "/dropped")["dropped"][0]["id"]

    def _open_transaction(self) -> None:
        self._lake("POST", "/transactions", {"name": TRANSACTION})

    def _iceberg(self, method: str, path: str, body: Any = None, *, ok: tuple[int, ...] = (200,)) -> Any:
        return self._send(method, f"/v1/{PREFIX}{path}", body, ok)

    def _lake(self, method: str, path: str, body: Any = None) -> Any:
        return self._send(method, f"/lake/v1/{PREFIX}{path}", body, (200,))

    def _send(self, method: str, path: str, body: Any, ok: tuple[int, ...]) -> Any:
        answer = self._http.request(method, path, json=body)
        assert answer.status_code in ok, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None
