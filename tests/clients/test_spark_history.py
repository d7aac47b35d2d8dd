"""Spark uses the history of a table: branches, tags, time travel, rollback, maintenance."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from pyiceberg.catalog.rest import RestCatalog

from tests.clients.duckdb_client import DuckLake
from tests.clients.pyiceberg_client import rows
from tests.clients.spark_client import SparkLake, SparkRefused
from tests.harness.rest import Rest


def test_branches_and_tags(
    spark_lake: SparkLake, rest: Rest, duck: DuckLake, iceberg: RestCatalog, namespace: str
) -> None:
    sql, catalog = spark_lake.sql, spark_lake.catalog()
    table = f"{catalog}.{namespace}.t"
    sql(f"CREATE TABLE {table} AS SELECT 1L AS id")
    sql(f"ALTER TABLE {table} CREATE TAG first RETAIN 7 DAYS")
    sql(f"ALTER TABLE {table} CREATE BRANCH audit RETAIN 2 DAYS WITH SNAPSHOT RETENTION 3 SNAPSHOTS")
    sql(f"INSERT INTO {table}.branch_audit VALUES (2), (3)")
    sql(f"DELETE FROM {table}.branch_audit WHERE id = 3")
    assert sql(f"SELECT id FROM {table}.branch_audit ORDER BY id") == [(1,), (2,)]
    assert sql(f"SELECT id FROM {table} VERSION AS OF 'first'") == [(1,)]
    assert duck.sql(f"SELECT id FROM lake.{namespace}.t") == [(1,)]
    refs = rest.load(namespace, "t")["metadata"]["refs"]
    assert {name: ref["type"] for name, ref in refs.items()} == {
        "main": "branch",
        "audit": "branch",
        "first": "tag",
    }
    assert (refs["first"]["max-ref-age-ms"], refs["audit"]["min-snapshots-to-keep"]) == (7 * 86_400_000, 3)

    sql(f"CALL {catalog}.system.fast_forward('{namespace}.t', 'main', 'audit')")
    assert rows(iceberg.load_table((namespace, "t"))) == [(1,), (2,)]
    sql(f"ALTER TABLE {table} REPLACE TAG first AS OF VERSION {refs['audit']['snapshot-id']}")
    sql(f"ALTER TABLE {table} DROP BRANCH audit")
    after = rest.load(namespace, "t")["metadata"]["refs"]
    assert set(after) == {"main", "first"}
    assert after["first"]["snapshot-id"] == after["main"]["snapshot-id"] == refs["audit"]["snapshot-id"]
    sql(f"ALTER TABLE {table} DROP TAG first")
    with pytest.raises(SparkRefused, match="first"):
        sql(f"SELECT * FROM {table} VERSION AS OF 'first'")


def test_time_travel_and_rollback(spark_lake: SparkLake, duck: DuckLake, rest: Rest, namespace: str) -> None:
    sql, catalog = spark_lake.sql, spark_lake.catalog()
    table = f"{catalog}.{namespace}.t"
    sql(f"CREATE TABLE {table} AS SELECT 1L AS id")
    first = rest.load(namespace, "t")["metadata"]["snapshots"][0]
    time.sleep(0.002)  # so that a millisecond lies between the two
    between = datetime.fromtimestamp((first["timestamp-ms"] + 1) / 1000, UTC)
    sql(f"ALTER TABLE {table} ADD COLUMN name string")
    sql(f"INSERT INTO {table} VALUES (2, 'b')")
    assert sql(f"SELECT * FROM {table} VERSION AS OF {first['snapshot-id']}") == [(1,)]
    assert sql(f"SELECT * FROM {table} TIMESTAMP AS OF '{between:%F %T.%f}'") == [(1,)]
    in_duckdb = f"SELECT id FROM lake.{namespace}.t AT"
    assert duck.sql(f"{in_duckdb} (VERSION => {first['snapshot-id']})") == [(1,)]
    assert duck.sql(f"{in_duckdb} (TIMESTAMP => TIMESTAMP '{between:%F %T.%f}')") == [(1,)]

    call = f"CALL {catalog}.system"
    sql(f"{call}.rollback_to_snapshot('{namespace}.t', {first['snapshot-id']})")
    assert sql(f"SELECT id FROM {table}") == [(1,)]
    newest = rest.load(namespace, "t")["metadata"]["snapshots"][-1]["snapshot-id"]
    sql(f"{call}.set_current_snapshot('{namespace}.t', {newest})")
    sql(f"{call}.rollback_to_timestamp('{namespace}.t', TIMESTAMP '{between:%F %T.%f}')")
    sql(f"{call}.cherrypick_snapshot('{namespace}.t', {newest})")
    assert sql(f"SELECT * FROM {table} ORDER BY id") == [(1, None), (2, "b")]
    assert duck.sql(f"SELECT * FROM lake.{namespace}.t ORDER BY id") == [(1, None), (2, "b")]


def test_metadata_tables(spark_lake: SparkLake, namespace: str) -> None:
    table = f"{spark_lake.catalog()}.{namespace}.t"
    spark_lake.sql(f"CREATE TABLE {table} PARTITIONED BY (id) AS SELECT 1L AS id")
    spark_lake.sql(f"INSERT INTO {table} VALUES (2)")
    expected = {
        "history": 2,
        "snapshots": 2,
        "metadata_log_entries": 2,
        "refs": 1,
        "files": 2,
        "manifests": 2,
        "partitions": 2,
        "all_data_files": 2,
        "all_manifests": 3,
        "entries": 2,
        "position_deletes": 0,
    }
    counts = " UNION ALL ".join(f"SELECT '{name}', count(*) FROM {table}.{name}" for name in expected)
    assert dict(spark_lake.sql(counts)) == expected


def test_maintenance_keeps_every_row(
    spark_lake: SparkLake, duck: DuckLake, rest: Rest, iceberg: RestCatalog, namespace: str
) -> None:
    sql, catalog = spark_lake.sql, spark_lake.catalog()
    table = f"{catalog}.{namespace}.t"
    sql(
        f"CREATE TABLE {table} (id bigint, name string) TBLPROPERTIES ('write.delete.mode'='merge-on-read', "
        "'commit.manifest.min-count-to-merge'='100')"
    )
    for first in (0, 10, 20):
        sql(f"INSERT INTO {table} SELECT id, concat('n', id) FROM range({first}, {first + 10})")
    sql(f"DELETE FROM {table} WHERE id = 5")
    call, argument = f"CALL {catalog}.system", f"table => '{namespace}.t'"
    (rewritten,) = sql(
        f"{call}.rewrite_data_files({argument}, "
        "options => map('rewrite-all', 'true', 'remove-dangling-deletes', 'true'))"
    )
    assert rewritten[:2] == (3, 1)
    sql(f"{call}.rewrite_manifests({argument}, use_caching => false)")
    sql(f"{call}.rewrite_position_delete_files({argument}, options => map('rewrite-all', 'true'))")
    sql(f"{call}.compute_table_stats({argument})")
    assert len(rest.load(namespace, "t")["metadata"]["statistics"]) == 1
    before = len(rest.load(namespace, "t")["metadata"]["snapshots"])
    now = datetime.now(UTC)
    (expired,) = sql(
        f"{call}.expire_snapshots({argument}, retain_last => 1, older_than => TIMESTAMP '{now:%F %T.%f}')"
    )
    assert expired[0] == 3  # data files of the first three inserts
    metadata = rest.load(namespace, "t")["metadata"]
    assert (before > 4, len(metadata["snapshots"])) == (True, 1)
    assert [entry["snapshot-id"] for entry in metadata["snapshot-log"]] == [metadata["current-snapshot-id"]]
    expected = [(n, f"n{n}") for n in range(30) if n != 5]
    assert sql(f"SELECT * FROM {table} ORDER BY id") == expected
    assert duck.sql(f"SELECT * FROM lake.{namespace}.t ORDER BY id") == expected
    assert sorted(rows(iceberg.load_table((namespace, "t")))) == expected
