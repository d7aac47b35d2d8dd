"""The warehouses that a query process has attached. They are kept for the next query of the same caller.

A warehouse at a number (`main@1234`) never changes, so DuckDB may cache what it has loaded of its tables. To
attach it and load a table again takes several milliseconds. While a query runs, only the warehouses that the
server named for it are attached, with the token of its caller.
"""

from __future__ import annotations

from typing import Any

import duckdb

from query import sql

QUERIES_MAX = 100  # then everything is attached anew, to limit the tables in DuckDB's cache
NO_LIMIT = "10 years"


class Attachments:
    def __init__(self, connection: duckdb.DuckDBPyConnection, endpoint: str) -> None:
        self._connection = connection
        self._endpoint = endpoint
        self._attached: dict[str, dict[str, Any]] = {}
        self._queries = 0

    def attach(self, wanted: list[dict[str, Any]]) -> None:
        """Attach these and no others. Each has `name`, `reference`, `token`, `is_fixed` and `made_ms`.

        `made_ms` is when the warehouse was created: a warehouse that was dropped and created again is another
        one.
        """
        self._queries += 1
        kept = {one["name"]: one for one in wanted if one["is_fixed"]} if self._queries < QUERIES_MAX else {}
        for name in [name for name, one in self._attached.items() if kept.get(name) != one]:
            self._detach(name)
        if not self._attached:
            self._queries = 0
        for one in wanted:
            if one["name"] not in self._attached:
                self._connection.execute(self._statement(one))
                self._attached[one["name"]] = one

    def forget(self) -> None:
        """Detach everything after an error, so that the next query attaches anew."""
        for name in list(self._attached):
            self._detach(name)

    def _detach(self, name: str) -> None:
        del self._attached[name]
        self._connection.execute(f"DETACH {sql.quoted(name)}")

    def _statement(self, one: dict[str, Any]) -> str:
        """Return the ATTACH statement, with the caller's own token, so that the catalog decides what the
        query may read.
        """
        authorization = f"TOKEN {sql.literal(one['token'])}" if one["token"] else "AUTHORIZATION_TYPE 'none'"
        keeps = f", MAX_TABLE_STALENESS '{NO_LIMIT}'" if one["is_fixed"] else ""
        return (
            f"ATTACH {sql.literal(one['reference'])} AS {sql.quoted(one['name'])} "
            f"(TYPE iceberg, ENDPOINT {sql.literal(self._endpoint)}, {authorization}, READ_ONLY{keeps})"
        )
