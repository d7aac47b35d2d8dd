"""Spark names things: namespaces, odd names, rename, views, drop and purge."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

from tests.clients.duckdb_client import DuckLake
from tests.clients.pyiceberg_client import rows
from tests.clients.spark_client import SparkLake, SparkRefused
from tests.harness.rest import Rest
from tests.harness.s3 import S3Server
from tests.harness.stacks import Stack, Stacks

ODD_NAMES = (
    "dots.in.name",
    "with space",
    "ünï©ödé ❄",
    "per%cent",
    "a+b&c=d",
    "quo'te",
    "semi;colon",
    "UPPER",
)


def test_namespaces(spark_lake: SparkLake, rest: Rest, namespace: str) -> None:
    sql, catalog = spark_lake.sql, spark_lake.catalog()
    sql(f"CREATE NAMESPACE {catalog}.{namespace}.inner COMMENT 'within' WITH DBPROPERTIES ('a'='1')")
    sql(f"CREATE NAMESPACE {catalog}.{namespace}.inner.most")
    sql(f"ALTER NAMESPACE {catalog}.{namespace}.inner SET DBPROPERTIES ('b'='2')")
    assert sql(f"SHOW NAMESPACES IN {catalog}.{namespace}") == [(f"{namespace}.inner",)]
    properties = rest.ok("GET", rest.namespace_path([namespace, "inner"]))["properties"]
    assert {key: properties[key] for key in ("a", "b", "comment")} == {
        "a": "1",
        "b": "2",
        "comment": "within",
    }
    sql(f"CREATE TABLE {catalog}.{namespace}.inner.most.t AS SELECT 1 AS id")
    assert sql(f"SELECT * FROM {catalog}.{namespace}.inner.most.t") == [(1,)]
    assert sql(f"SHOW TABLES IN {catalog}.{namespace}.inner.most") == [
        (f"{namespace}.inner.most", "t", False)
    ]
    with pytest.raises(SparkRefused, match="is not empty"):
        sql(f"DROP NAMESPACE {catalog}.{namespace}.inner")
    sql(f"DROP TABLE {catalog}.{namespace}.inner.most.t")
    sql(f"DROP NAMESPACE {catalog}.{namespace}.inner.most")
    sql(f"DROP NAMESPACE {catalog}.{namespace}.inner")
    assert sql(f"SHOW NAMESPACES IN {catalog}.{namespace}") == []


def test_odd_names(
    spark_lake: SparkLake, duck: DuckLake, rest: Rest, iceberg: RestCatalog, namespace: str
) -> None:
    """Made by Spark, read by the others, in a namespace with an odd name too."""
    sql, catalog = spark_lake.sql, spark_lake.catalog()
    odd = f"{namespace}.odd näme"
    sql(f"CREATE NAMESPACE {catalog}.`{odd}`")
    for number, name in enumerate(ODD_NAMES):
        sql(f"CREATE TABLE {catalog}.`{odd}`.`{name}` (id int)")
        iceberg.load_table((odd, name)).append(pa.table({"id": pa.array([number], pa.int32())}))
    assert sorted(rest.tables(odd)) == sorted(ODD_NAMES)
    assert sorted(name for _, name in iceberg.list_tables((odd,))) == sorted(ODD_NAMES)
    listed = duck.sql(f"SELECT name FROM (SHOW ALL TABLES) WHERE database = 'lake' AND schema = '{odd}'")
    assert sorted(name for (name,) in listed) == sorted(ODD_NAMES)
    for number, name in enumerate(ODD_NAMES):
        assert duck.sql(f'SELECT id FROM lake."{odd}"."{name}"') == [(number,)]
    union = " UNION ALL ".join(f"SELECT id FROM {catalog}.`{odd}`.`{name}`" for name in ODD_NAMES)
    assert sorted(sql(union)) == [(number,) for number in range(len(ODD_NAMES))]


def test_a_rename_keeps_everything_but_the_name(
    spark_lake: SparkLake, rest: Rest, iceberg: RestCatalog, namespace: str
) -> None:
    sql, catalog = spark_lake.sql, spark_lake.catalog()
    other = rest.fresh_namespace()
    sql(f"CREATE TABLE {catalog}.{namespace}.t AS SELECT 1L AS id")
    before = rest.load(namespace, "t")
    sql(f"ALTER TABLE {catalog}.{namespace}.t RENAME TO {other}.moved")
    after = rest.load(other, "moved")
    assert after["metadata"] == before["metadata"]
    sql(f"CREATE TABLE {catalog}.{namespace}.t AS SELECT 'another' AS name")
    sql(f"INSERT INTO {catalog}.{other}.moved VALUES (2)")
    assert rows(iceberg.load_table((other, "moved"))) == [(1,), (2,)]
    assert rows(iceberg.load_table((namespace, "t"))) == [("another",)]
    with pytest.raises(SparkRefused, match="already exists"):
        sql(f"ALTER TABLE {catalog}.{other}.moved RENAME TO {namespace}.t")


def test_views(spark_lake: SparkLake, rest: Rest, iceberg: RestCatalog, namespace: str) -> None:
    sql, catalog = spark_lake.sql, spark_lake.catalog()
    here = f"{catalog}.{namespace}"
    sql(f"CREATE TABLE {here}.t AS SELECT 1L AS id, 'a' AS name UNION ALL SELECT 2, 'b'")
    sql(
        f"CREATE VIEW {here}.v (number COMMENT 'which one', label) COMMENT 'all of it' "
        f"TBLPROPERTIES ('a'='1', 'b'='2') AS SELECT id, name FROM {here}.t"
    )
    assert sql(f"SELECT * FROM {here}.v ORDER BY number") == [(1, "a"), (2, "b")]
    sql(f"CREATE OR REPLACE VIEW {here}.v AS SELECT id FROM {here}.t WHERE id > 1")
    assert sql(f"SELECT * FROM {here}.v") == [(2,)]
    sql(f"CREATE VIEW IF NOT EXISTS {here}.v AS SELECT 'not used'")
    sql(f"ALTER VIEW {here}.v SET TBLPROPERTIES ('c'='3')")
    sql(f"ALTER VIEW {here}.v UNSET TBLPROPERTIES ('c')")
    sql(f"CREATE OR REPLACE VIEW {here}.v AS SELECT id + 1 AS next FROM {here}.t")
    sql(f"CREATE VIEW {here}.over AS SELECT max(next) AS top FROM {here}.v")
    assert sql(f"SELECT * FROM {here}.over") == [(3,)]
    with pytest.raises(SparkRefused, match="already exists"):
        sql(f"CREATE VIEW {here}.t AS SELECT 1")
    with pytest.raises(SparkRefused, match="already exists"):
        sql(f"CREATE TABLE {here}.v (id int)")
    assert sorted(row[1] for row in sql(f"SHOW VIEWS IN {here}")) == ["over", "v"]
    assert "next" in sql(f"SHOW CREATE TABLE {here}.v")[0][0]
    assert [row[0] for row in sql(f"DESCRIBE {here}.v")] == ["next"]
    found = rest.ok("GET", rest.namespace_path(namespace, "views", "v"))["metadata"]
    assert len(found["versions"]) == 3

    sql(f"ALTER VIEW {here}.v RENAME TO {here}.renamed")
    assert sorted(iceberg.list_views((namespace,))) == [(namespace, "over"), (namespace, "renamed")]
    assert iceberg.view_exists((namespace, "renamed"))
    sql(f"DROP VIEW {here}.over")
    iceberg.drop_view((namespace, "renamed"))
    assert sql(f"SHOW VIEWS IN {here}") == []
    assert rest.tables(namespace) == ["t"]


def test_drop_keeps_the_files_and_purge_removes_them(
    spark_lake: SparkLake, rest: Rest, stack: Stack, stacks: Stacks, namespace: str
) -> None:
    sql, catalog = spark_lake.sql, spark_lake.catalog()
    for name in ("kept", "purged"):
        sql(f"CREATE TABLE {catalog}.{namespace}.{name} AS SELECT 1L AS id")
        sql(f"INSERT INTO {catalog}.{namespace}.{name} VALUES (2)")
    kept, purged = (rest.load(namespace, name) for name in ("kept", "purged"))
    sql(f"DROP TABLE {catalog}.{namespace}.kept")
    sql(f"DROP TABLE {catalog}.{namespace}.purged PURGE")
    assert rest.tables(namespace) == []
    assert _files(stack, stacks, purged["metadata"]["location"]) == []
    sql(f"CALL {catalog}.system.register_table('{namespace}.again', '{kept['metadata-location']}')")
    assert sql(f"SELECT id FROM {catalog}.{namespace}.again ORDER BY id") == [(1,), (2,)]
    assert rest.load(namespace, "again")["metadata"] == kept["metadata"]


def _files(stack: Stack, stacks: Stacks, location: str) -> list[Path]:
    server: S3Server | None = stacks.s3 if stack.s3 is not None else None
    folder = server.path(location) if server else Path(location.removeprefix("file://"))
    # Also the checksums that Spark writes beside local files, which no metadata knows of, and the folders.
    return [folder, *folder.rglob("*")] if server is None and folder.exists() else _files_in(folder)


def _files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
