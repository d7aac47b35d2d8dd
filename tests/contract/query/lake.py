"""Queries as a client sends them, and tables to ask about."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

import httpx
import pyarrow as pa
from pyiceberg.table import Table

from tests.clients import pyiceberg_client
from tests.harness.stacks import Stack

TIMEOUT_S = 120.0


@dataclass(frozen=True)
class QueryLake:
    """A namespace of its own in the warehouse `main` of a running server."""

    stack: Stack
    namespace: str

    @staticmethod
    def on(stack: Stack) -> QueryLake:
        namespace = f"q{uuid.uuid4().hex[:8]}"
        pyiceberg_client.catalog(stack).create_namespace(namespace)
        return QueryLake(stack, namespace)

    def post(self, sql: str, **more: Any) -> httpx.Response:
        headers = more.pop("headers", {})
        body = {"sql": sql, "namespace": self.namespace, **more}
        return httpx.post(f"{self.stack.url}/query", json=body, headers=headers, timeout=TIMEOUT_S)

    def ask(self, sql: str, **more: Any) -> dict[str, Any]:
        """The whole JSON answer of a query that succeeds."""
        response = self.post(sql, **more)
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        assert "error" not in answer, answer
        return answer

    def rows(self, sql: str, **more: Any) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.ask(sql, format="compact", **more)["rows"]]

    def refused(self, sql: str, **more: Any) -> dict[str, Any]:
        """The error of a query that fails."""
        response = self.post(sql, **more)
        assert response.status_code >= 400, response.text
        error: dict[str, Any] = response.json()["error"]
        assert error["code"] == response.status_code
        return error

    def create(self, name: str, data: pa.Table, **more: Any) -> Table:
        table: Table = pyiceberg_client.catalog(self.stack).create_table(
            (self.namespace, name), data.schema, **more
        )
        if data.num_rows:
            table.append(data)
        return table

    def orders(self, name: str = "orders") -> Table:
        """Three orders in two commits: ids 1 and 2, then 3."""
        table = self.create(name, orders([1, 2]))
        table.append(orders([3]))
        return table


def orders(ids: list[int]) -> pa.Table:
    statuses = ["new" if number % 2 else "paid" for number in ids]
    return pa.table({"id": ids, "amount": [number * 1.5 for number in ids], "status": statuses})
