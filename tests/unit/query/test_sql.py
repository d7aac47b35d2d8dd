"""Statements: which tables they read, and that only their names are edited."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from query import sql


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as found:
        yield found


def _resolved(connection: duckdb.DuckDBPyConnection, text: str, snapshot_id: int | None = None) -> str:
    statement = sql.read_statement(connection, text)
    tables = {
        table.key: sql.ResolvedTable("L", table.schema or "d", table.name, snapshot_id)
        for table in statement.tables
    }
    return sql.resolved_sql(connection, text, tables)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT * FROM orders", 'SELECT * FROM "L"."d"."orders"'),
        ("FROM main.shop.orders o", 'FROM "L"."shop"."orders" o'),
        ('FROM main . "sh""op" . "or ders"', 'FROM "L"."sh""op"."or ders"'),
        ("SELECT é FROM é.ö /* FROM x */", 'SELECT é FROM "L"."é"."ö" /* FROM x */'),
        ("SELECT 'FROM orders' FROM orders", 'SELECT \'FROM orders\' FROM "L"."d"."orders"'),
        ("WITH a AS (FROM a) FROM a", 'WITH a AS (FROM "L"."d"."a") FROM a'),
        (
            "WITH a AS (SELECT 1), b AS (FROM a) FROM b, c",
            'WITH a AS (SELECT 1), b AS (FROM a) FROM b, "L"."d"."c"',
        ),
        (
            "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t, u) FROM t",
            'WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t, "L"."d"."u") FROM t',
        ),
        (
            "SELECT * FROM (WITH x AS (SELECT 1) FROM x), x",
            'SELECT * FROM (WITH x AS (SELECT 1) FROM x), "L"."d"."x"',
        ),
        ("EXPLAIN ANALYZE FROM a", 'EXPLAIN ANALYZE FROM "L"."d"."a"'),
        ("-- é\nEXPLAIN (FORMAT json) FROM a", '-- é\nEXPLAIN (FORMAT json) FROM "L"."d"."a"'),
        ("FROM range(3), unnest([1])", "FROM range(3), unnest([1])"),
        (
            "SELECT * FROM a WHERE EXISTS (FROM b)",
            'SELECT * FROM "L"."d"."a" WHERE EXISTS (FROM "L"."d"."b")',
        ),
    ],
)
def test_names_are_resolved(connection: duckdb.DuckDBPyConnection, text: str, expected: str) -> None:
    assert _resolved(connection, text) == expected


def test_snapshots(connection: duckdb.DuckDBPyConnection) -> None:
    assert _resolved(connection, "FROM a AT (VERSION => 'tag')", 7) == 'FROM "L"."d"."a" AT (VERSION => 7)'
    assert _resolved(connection, "FROM a AT (VERSION => 5)", 5) == 'FROM "L"."d"."a" AT (VERSION => 5)'
    inner = '(FROM "L"."d"."a" AT (VERSION => 7))'
    assert _resolved(connection, "FROM a WHERE TRUE", 7) == f'FROM {inner} AS "a" WHERE TRUE'
    assert _resolved(connection, "FROM a AS x", 7) == f"FROM {inner} AS x"


def test_an_edit_that_reads_another_table_is_refused(connection: duckdb.DuckDBPyConnection) -> None:
    (table,) = sql.read_statement(connection, "FROM a").tables
    resolved = {table.key: sql.ResolvedTable("L", "d", "a")}
    with pytest.raises(KeyError):
        sql.resolved_sql(connection, "FROM b", resolved)


@pytest.mark.parametrize(
    "text",
    ["", ";", "SELECT 1; SELECT 2", "DROP TABLE a", "FROM read_text('x')", "SHOW TABLES", "SELECT 1\0"],
)
def test_refused(connection: duckdb.DuckDBPyConnection, text: str) -> None:
    with pytest.raises(sql.Refused):
        sql.read_statement(connection, text)


def test_parameters(connection: duckdb.DuckDBPyConnection) -> None:
    assert sql.read_statement(connection, "SELECT $b, $a").parameters == ("a", "b")
    assert sql.read_statement(connection, "SELECT ?, ?").parameters == ("1", "2")
