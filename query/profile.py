"""What a query read, by DuckDB's own measurement of its operators."""

from __future__ import annotations

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
