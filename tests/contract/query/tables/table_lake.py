"""Table functions as a client calls them, and tables that PyIceberg writes."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType

from tests.clients import pyiceberg_client
from tests.harness.stacks import Stack

TIMEOUT_S = 60.0
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "status", StringType()),
    identifier_field_ids=[1],
)
ARROW = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("status", pa.string())])


def orders(*rows: tuple[int, str | None]) -> pa.Table:
    return pa.Table.from_pylist([{"id": id_, "status": status} for id_, status in rows], schema=ARROW)


@dataclass(frozen=True)
class TableLake:
    """A namespace of its own in the warehouse `main` of a running server."""

    stack: Stack
    namespace: str

    @staticmethod
    def on(stack: Stack) -> TableLake:
        namespace = f"t{uuid.uuid4().hex[:8]}"
        pyiceberg_client.catalog(stack).create_namespace(namespace)
        return TableLake(stack, namespace)

    def path(self, table: str, *more: str) -> str:
        parts = [quote(part, safe="") for part in (self.namespace, "tables", table, *more)]
        return f"/lake/v1/main/namespaces/{'/'.join(parts)}"

    def call(self, method: str, table: str, *more: str, **options: Any) -> httpx.Response:
        return self.send(method, self.path(table, *more), **options)

    def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        return httpx.request(method, self.stack.url + path, timeout=TIMEOUT_S, **options)

    def ok(self, method: str, table: str, *more: str, **options: Any) -> Any:
        response = self.call(method, table, *more, **options)
        assert response.is_success, response.text
        return response.json() if response.content else None

    def get(self, table: str, *more: str, **params: Any) -> Any:
        return self.ok("GET", table, *more, params=params)

    def post(self, table: str, *more: str, **body: Any) -> Any:
        return self.ok("POST", table, *more, json=body)

    def refused(self, method: str, table: str, *more: str, **options: Any) -> dict[str, Any]:
        response = self.call(method, table, *more, **options)
        assert response.status_code >= 400, response.text
        error: dict[str, Any] = response.json()["error"]
        assert error["code"] == response.status_code
        return error

    def create(self, name: str, schema: Schema = SCHEMA, **more: Any) -> Table:
        catalog = pyiceberg_client.catalog(self.stack)
        made: Table = catalog.create_table((self.namespace, name), schema, **more)
        return made

    def table(self, name: str) -> Table:
        found: Table = pyiceberg_client.catalog(self.stack).load_table((self.namespace, name))
        return found

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        return pyiceberg_client.rows(self.table(name))

    def head(self) -> int:
        """The number of the newest commit."""
        number: int = self.send("GET", "/lake/v1/main/events?after=4611686018427387904").json()["head"]
        return number

    def orders(self, name: str = "orders") -> list[int]:
        """Three orders in two commits: ids 1 and 2, then 3. Answers the numbers of the commits."""
        table = self.create(name)
        table.append(orders((1, "new"), (2, "paid")))
        first = self.head()
        table.append(orders((3, "new")))
        return [first, self.head()]
