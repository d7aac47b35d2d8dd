"""Measure what a query read, with DuckDB's profile of its operators and its log of files."""

from __future__ import annotations

from typing import Any

import duckdb
import orjson

from query import sql

_BYTES_OF_FILES = """SELECT path, sum(bytes::BIGINT)::BIGINT FROM duckdb_logs_parsed('FileSystem')
    WHERE op = 'READ' GROUP BY 1"""


def measured(connection: duckdb.DuckDBPyConnection, text: str, parameters: Any) -> dict[str, Any]:
    """Run the query. `profile` is the plan with measurements, `files` the bytes that were read of
    each file.
    """
    connection.execute("CALL enable_logging('FileSystem')")
    try:
        profile = run_without_rows(connection, text, parameters)
        files = dict(connection.execute(_BYTES_OF_FILES).fetchall())
    finally:
        connection.execute("CALL disable_logging()")
        connection.execute("CALL truncate_duckdb_logs()")
    return {"profile": profile, "files": files}


def run_without_rows(connection: duckdb.DuckDBPyConnection, text: str, parameters: Any) -> dict[str, Any]:
    """Run the query, discard its rows, and return the plan with measurements."""
    statement = f"EXPLAIN (ANALYZE, FORMAT JSON) {sql.without_explain(text)}"
    row = connection.execute(statement, parameters or None).fetchone()
    assert row is not None
    plan: dict[str, Any] = orjson.loads(row[1])
    return plan
