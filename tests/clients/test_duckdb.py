"""DuckDB makes, changes and reads tables; PyIceberg checks what it left behind."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import duckdb
import pytest
from pyiceberg.catalog.rest import RestCatalog

from tests.clients.duckdb_client import DuckLake
from tests.clients.pyiceberg_client import rows
from tests.harness.rest import Rest
from tests.harness.stacks import Stack


def test_schemas_and_tables_are_made_listed_renamed_and_dropped(
    duck: DuckLake, rest: Rest, namespace: str
) -> None:
    other = f"{namespace}_other"
    duck.sql(f"CREATE SCHEMA lake.{other}")
    duck.sql(f"CREATE TABLE lake.{other}.t (id BIGINT, name VARCHAR)")
    duck.sql(f"CREATE TABLE lake.{other}.made AS SELECT 1 AS id")
    assert duck.sql(
        f"SELECT name FROM (SHOW ALL TABLES) WHERE database = 'lake' AND schema = '{other}' ORDER BY name"
    ) == [("made",), ("t",)]
    assert [row[:2] for row in duck.sql(f"DESCRIBE lake.{other}.t")] == [
        ("id", "BIGINT"),
        ("name", "VARCHAR"),
    ]
    duck.sql(f"ALTER TABLE lake.{other}.made RENAME TO renamed")
    assert duck.sql(f"SELECT id FROM lake.{other}.renamed") == [(1,)]
    with pytest.raises(duckdb.Error, match="does not exist"):
        duck.sql(f"SELECT * FROM lake.{other}.made")
    with pytest.raises(duckdb.Error, match="is not empty"):
        duck.sql(f"DROP SCHEMA lake.{other}")
    duck.sql(f"DROP TABLE lake.{other}.t")
    duck.sql(f"DROP TABLE lake.{other}.renamed")
    assert rest.tables(other) == []
    duck.sql(f"DROP SCHEMA lake.{other}")
    assert rest.call("HEAD", rest.namespace_path(other)).status_code == 404


@pytest.mark.parametrize("version", [2, 3])
def test_rows_are_inserted_updated_deleted_and_merged(
    duck: DuckLake, iceberg: RestCatalog, namespace: str, version: int
) -> None:
    table = f"lake.{namespace}.t"
    duck.sql(f"CREATE TABLE {table} (id BIGINT, name VARCHAR) WITH ('format-version' = {version})")
    duck.sql(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')")
    duck.sql(f"UPDATE {table} SET name = 'updated' WHERE id = 2")
    duck.sql(f"DELETE FROM {table} WHERE id = 3")
    duck.sql(
        f"MERGE INTO {table} t USING (VALUES (1, 'merged'), (5, 'new')) s(id, name) ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET name = s.name WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.name)"
    )
    expected = [(1, "merged"), (2, "updated"), (4, "d"), (5, "new")]
    assert duck.sql(f"SELECT * FROM {table} ORDER BY id") == expected
    assert rows(iceberg.load_table((namespace, "t"))) == expected
    duck.sql(f"TRUNCATE {table}")
    assert duck.sql(f"SELECT count(*) FROM {table}") == [(0,)]


def test_columns_and_partitions_change(duck: DuckLake, iceberg: RestCatalog, namespace: str) -> None:
    table = f"lake.{namespace}.t"
    duck.sql(f"CREATE TABLE {table} AS SELECT 1::BIGINT AS id")
    duck.sql(f"ALTER TABLE {table} ADD COLUMN name VARCHAR")
    duck.sql(f"INSERT INTO {table} VALUES (2, 'b')")
    duck.sql(f"ALTER TABLE {table} RENAME COLUMN name TO label")
    duck.sql(f"ALTER TABLE {table} SET PARTITIONED BY (bucket(4, id))")
    duck.sql(f"INSERT INTO {table} VALUES (3, 'c')")
    assert duck.sql(f"SELECT id, label FROM {table} ORDER BY id") == [(1, None), (2, "b"), (3, "c")]
    found = iceberg.load_table((namespace, "t"))
    assert [str(field.transform) for field in found.spec().fields] == ["bucket[4]"]
    assert rows(found) == [(1, None), (2, "b"), (3, "c")]
    duck.sql(f"ALTER TABLE {table} DROP COLUMN label")
    assert duck.sql(f"SELECT * FROM {table} ORDER BY id") == [(1,), (2,), (3,)]


def test_a_transaction_over_two_tables_is_one_commit(
    stack: Stack, duck: DuckLake, rest: Rest, namespace: str
) -> None:
    for name in ("a", "b"):
        duck.sql(f"CREATE TABLE lake.{namespace}.{name} (id BIGINT)")
    before = rest.head()
    duck.sql("BEGIN")
    for name in ("a", "b", "a"):
        duck.sql(f"INSERT INTO lake.{namespace}.{name} VALUES (1), (2)")
    duck.sql(f"DELETE FROM lake.{namespace}.b WHERE id = 1")
    with DuckLake(stack) as another:
        assert another.sql(f"SELECT count(*) FROM lake.{namespace}.a") == [(0,)]
    duck.sql("COMMIT")
    assert rest.head() == before + 1
    with DuckLake(stack) as another:
        counts = (
            f"SELECT (SELECT count(*) FROM lake.{namespace}.a), (SELECT count(*) FROM lake.{namespace}.b)"
        )
        assert another.sql(counts) == [(4, 1)]


def test_a_rollback_leaves_nothing(duck: DuckLake, rest: Rest, namespace: str) -> None:
    duck.sql(f"CREATE TABLE lake.{namespace}.t AS SELECT 1 AS id")
    before = rest.head()
    duck.sql("BEGIN")
    duck.sql(f"INSERT INTO lake.{namespace}.t VALUES (2)")
    duck.sql(f"CREATE TABLE lake.{namespace}.never AS SELECT 1 AS id")
    duck.sql("ROLLBACK")
    assert (rest.tables(namespace), rest.head()) == (["t"], before)
    assert duck.sql(f"SELECT id FROM lake.{namespace}.t") == [(1,)]


def test_create_and_insert_in_one_transaction(duck: DuckLake, iceberg: RestCatalog, namespace: str) -> None:
    """The manifests are written before the table exists: the folder for them must be there."""
    duck.sql(
        f"BEGIN; CREATE TABLE lake.{namespace}.t (id BIGINT); "
        f"INSERT INTO lake.{namespace}.t VALUES (1), (2); COMMIT"
    )
    assert rows(iceberg.load_table((namespace, "t"))) == [(1,), (2,)]


def test_two_writers_and_one_loses(stack: Stack, duck: DuckLake, namespace: str) -> None:
    duck.sql(f"CREATE TABLE lake.{namespace}.t AS SELECT 1 AS id")
    with DuckLake(stack) as other:
        duck.sql("BEGIN")
        duck.sql(f"INSERT INTO lake.{namespace}.t VALUES (2)")
        other.sql(f"INSERT INTO lake.{namespace}.t VALUES (3)")
        with pytest.raises(duckdb.Error, match="branch main has changed"):
            duck.sql("COMMIT")
        assert other.sql(f"SELECT id FROM lake.{namespace}.t ORDER BY id") == [(1,), (3,)]


def test_time_travel(duck: DuckLake, rest: Rest, namespace: str) -> None:
    table = f"lake.{namespace}.t"
    duck.sql(f"CREATE TABLE {table} AS SELECT 1 AS id")
    first = rest.load(namespace, "t")["metadata"]["snapshots"][0]
    time.sleep(0.002)  # so that a millisecond lies between the two
    duck.sql(f"INSERT INTO {table} VALUES (2)")
    between = datetime.fromtimestamp((first["timestamp-ms"] + 1) / 1000, UTC)
    assert duck.sql(f"SELECT id FROM {table} AT (VERSION => {first['snapshot-id']})") == [(1,)]
    assert duck.sql(f"SELECT id FROM {table} AT (TIMESTAMP => TIMESTAMP '{between:%F %T.%f}')") == [(1,)]
    assert len(duck.sql(f"SELECT * FROM iceberg_snapshots({table})")) == 2


def test_types_survive(duck: DuckLake, iceberg: RestCatalog, namespace: str) -> None:
    values = (
        "1::INT AS i, 2::BIGINT AS l, 1.5::FLOAT AS f, 2.5::DOUBLE AS d, 3.25::DECIMAL(9, 2) AS p, 'x' AS s, "
        "DATE '2026-01-02' AS day, TIME '01:02:03' AS t, TIMESTAMP '2026-01-02 03:04:05.678' AS ts, "
        "TIMESTAMPTZ '2026-01-02 03:04:05+00' AS tz, true AS b, '\\x01'::BLOB AS bytes, "
        "'00000000-0000-0000-0000-000000000007'::UUID AS u, [1, 2] AS list, {'a': 1, 'b': 'y'} AS struct, "
        "MAP {'k': 9} AS map"
    )
    duck.sql(f"CREATE TABLE lake.{namespace}.t AS SELECT {values}")
    # As text, because DuckDB's Python package wants another package for a time with a zone.
    wanted = duck.sql(f"SELECT COLUMNS(*)::VARCHAR FROM (SELECT {values})")
    assert duck.sql(f"SELECT COLUMNS(*)::VARCHAR FROM lake.{namespace}.t") == wanted
    (read,) = iceberg.load_table((namespace, "t")).scan().to_arrow().to_pylist()
    assert (read["i"], read["s"], read["list"], read["struct"]) == (1, "x", [1, 2], {"a": 1, "b": "y"})


def test_what_the_catalog_refuses_is_shown(duck: DuckLake, stack: Stack, namespace: str) -> None:
    duck.sql(f"CREATE TABLE lake.{namespace}.t AS SELECT 1 AS id")
    with pytest.raises(duckdb.Error, match="already exists"):
        duck.sql(f"CREATE TABLE lake.{namespace}.t (id INT)")
    with pytest.raises(duckdb.Error, match="does not exist"):
        duck.sql(f"SELECT * FROM lake.{namespace}.nothing")
    with pytest.raises(duckdb.Error, match="404"):
        DuckLake(stack, "nowhere")


def test_nested_namespaces(stack: Stack, rest: Rest, iceberg: RestCatalog, namespace: str) -> None:
    iceberg.create_namespace((namespace, "inner"))
    with DuckLake(stack, options=", SUPPORT_NESTED_NAMESPACES true") as nested:
        nested.sql(f'CREATE TABLE lake."{namespace}.inner".t AS SELECT 1 AS id')
        assert nested.sql(f'SELECT id FROM lake."{namespace}.inner".t') == [(1,)]
    assert rest.tables([namespace, "inner"]) == ["t"]
