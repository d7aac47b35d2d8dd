"""What a query read, by DuckDB's own measurement of its operators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import orjson

from query import sql


def measured(connection: duckdb.DuckDBPyConnection, text: str, parameters: Any) -> dict[str, Any]:
    """Run the query, throw its rows away, and return the plan with figures."""
    statement = f"EXPLAIN (ANALYZE, FORMAT JSON) {sql.without_explain(text)}"
    row = connection.execute(statement, parameters or None).fetchone()
    assert row is not None
    plan: dict[str, Any] = orjson.loads(row[1])
    return plan


def scans(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The operators that read tables of the lake."""
    pending = [plan]
    while pending:
        node = pending.pop()
        if "ICEBERG" in str(node.get("operator_name", node.get("name", ""))).upper():
            yield node
        pending.extend(node.get("children") or ())
