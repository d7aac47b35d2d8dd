"""PostgreSQL, DuckDB and the worker compute the same checksums of the same rows."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from typing import Any

import duckdb
import psycopg
import pyarrow as pa

from calve.verification.columns import Column
from calve.verification.statements import Statements
from spark_jobs.tables.checksums import checksums, key_digests, row_hashes
from tests.harness.postgres import PostgresServer

UTC = dt.UTC
# Column, Iceberg type, PostgreSQL type, DuckDB type, Arrow type, values
TYPES: list[tuple[str, str, str, str, pa.DataType, list[Any]]] = [
    ("id", "long", "bigint", "BIGINT", pa.int64(), [1, 2, -3, 2**62]),
    ("b", "boolean", "boolean", "BOOLEAN", pa.bool_(), [True, False, None, True]),
    ("i", "int", "integer", "INTEGER", pa.int32(), [0, -(2**31), 2**31 - 1, None]),
    ("f", "float", "real", "FLOAT", pa.float32(), [0.1, -0.0, 1e38, None]),
    ("d", "double", "double precision", "DOUBLE", pa.float64(), [0.1, 5e-324, -1.7976931348623157e308, -0.0]),
    ("x", "double", "double precision", "DOUBLE", pa.float64(),
     [float("nan"), float("inf"), float("-inf"), 1e16]),
    ("n", "decimal(20, 10)", "numeric(20,10)", "DECIMAL(20,10)", pa.decimal128(20, 10),
     [Decimal(0), Decimal("-0.0000000001"), Decimal("1234567890.5"), None]),
    ("t", "string", "text", "VARCHAR", pa.string(), ["", "a:b-1", "ünï😀\n\t'\"\\", None]),
    ("c", "string", "varchar(20)", "VARCHAR", pa.string(), [" x ", "-", "1:a", None]),
    ("u", "uuid", "uuid", "UUID", pa.uuid(),
     [uuid.UUID(int=0), uuid.UUID(int=2**128 - 1), uuid.UUID(int=0xABCDEF), None]),
    ("y", "binary", "bytea", "BLOB", pa.binary(), [b"", b"\x00\xff", b"abc", None]),
    ("a", "date", "date", "DATE", pa.date32(),
     [dt.date(1969, 12, 31), dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
    ("m", "time", "time", "TIME", pa.time64("us"),
     [dt.time(0, 0), dt.time(23, 59, 59, 999999), dt.time(1, 2, 3, 4), None]),
    ("s", "timestamp", "timestamp", "TIMESTAMP", pa.timestamp("us"),
     [dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime(1, 1, 1), dt.datetime(9999, 1, 1), None]),  # noqa: DTZ001
    ("z", "timestamptz", "timestamptz", "TIMESTAMPTZ", pa.timestamp("us", tz="UTC"),
     [dt.datetime(2026, 3, 29, 1, 30, 0, 1, tzinfo=UTC), dt.datetime(1900, 1, 1, tzinfo=UTC), None, None]),
]  # fmt: skip
COLUMNS = sorted((Column(name, type_) for name, type_, *_ in TYPES), key=lambda column: column.name)
KEYS = (["id"], ["id", "t"], ["u", "z"])
ROWS = list(zip(*(values for *_, values in TYPES), strict=True))


def statements(dialect: Any, key: list[str]) -> Statements:
    named = {column.name: column for column in COLUMNS}
    return Statements(["checked"], [named[name] for name in key], COLUMNS, dialect)


def in_worker(key: list[str]) -> dict[str, tuple[int, str]]:
    arrays = {name: pa.array(values, type_) for name, _, _, _, type_, values in TYPES}
    found = checksums(
        key_digests([arrays[name] for name in key]), row_hashes([arrays[column.name] for column in COLUMNS])
    )
    return {bucket: (one.rows, str(one.hash)) for bucket, one in found.items()}


def as_sums(rows: list[tuple[Any, ...]]) -> dict[str, tuple[int, str]]:
    return {bucket: (count, sum_) for bucket, count, sum_ in rows}


def test_postgresql_computes_what_the_worker_does(postgres: PostgresServer) -> None:
    address = postgres.database().replace("+psycopg", "")
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("SET TimeZone = 'America/New_York'")  # no text depends on it
        made = ", ".join(f'"{name}" {type_}' for name, _, type_, *_ in TYPES)
        connection.execute(f"CREATE TABLE checked ({made})".encode())
        places = ", ".join(["%s"] * len(TYPES))
        for row in ROWS:
            connection.execute(f"INSERT INTO checked VALUES ({places})".encode(), row)
        for key in KEYS:
            found = connection.execute(statements("postgresql", key).buckets().encode()).fetchall()
            assert as_sums(found) == in_worker(key), key


def test_duckdb_computes_what_the_worker_does() -> None:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'America/New_York'")
        made = ", ".join(f'"{name}" {type_}' for name, _, _, type_, *_ in TYPES)
        connection.execute(f"CREATE TABLE checked ({made})")
        places = ", ".join(["?"] * len(TYPES))
        connection.executemany(f"INSERT INTO checked VALUES ({places})", ROWS)
        for key in KEYS:
            found = connection.execute(statements("duckdb", key).buckets()).fetchall()
            assert as_sums(found) == in_worker(key), key


def test_mysql_has_sql_for_every_type_but_floating_ones() -> None:
    exact = [column for column in COLUMNS if column.type not in ("float", "double")]
    statement = Statements(["shop", "or`ders"], exact[:1], exact, "mysql").buckets()
    assert "FROM `shop`.`or``ders`" in statement
    assert "CAST(CAST(`n` AS DECIMAL(20,10)) AS CHAR)" in statement
