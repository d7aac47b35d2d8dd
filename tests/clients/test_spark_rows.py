"""Spark changes rows in every way it knows; DuckDB and PyIceberg must see the same rows."""

from __future__ import annotations

import pytest
from pyiceberg.catalog.rest import RestCatalog

from tests.clients.duckdb_client import DuckLake
from tests.clients.pyiceberg_client import rows
from tests.clients.spark_client import MERGE_ON_READ, SparkLake, SparkRefused
from tests.harness.rest import Rest


@pytest.mark.parametrize("version", [2, 3])
def test_rows_are_inserted_merged_updated_and_deleted(
    spark_lake: SparkLake, duck: DuckLake, iceberg: RestCatalog, namespace: str, version: int
) -> None:
    """Merge-on-read, so that the others must apply position deletes (v2) and deletion vectors (v3)."""
    sql, table = spark_lake.sql, f"{spark_lake.catalog()}.{namespace}.t"
    sql(
        f"CREATE TABLE {table} (id bigint NOT NULL, name string) USING iceberg "
        f"TBLPROPERTIES ('format-version'='{version}', {MERGE_ON_READ})"
    )
    sql(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd'), (5, 'e')")
    sql(
        f"MERGE INTO {table} t USING (SELECT 2L AS id, 'merged' AS name UNION ALL SELECT 6, 'new') s "
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    sql(f"UPDATE {table} SET name = 'updated' WHERE id = 3")
    sql(f"DELETE FROM {table} WHERE id = 4")
    expected = [(1, "a"), (2, "merged"), (3, "updated"), (5, "e"), (6, "new")]
    assert sql(f"SELECT * FROM {table} ORDER BY id") == expected
    assert duck.sql(f"SELECT * FROM lake.{namespace}.t ORDER BY id") == expected
    found = iceberg.load_table((namespace, "t"))
    assert rows(found) == expected
    assert found.metadata.format_version == version
    summary = found.current_snapshot()
    assert summary is not None
    assert summary.summary is not None
    assert int(summary.summary["total-position-deletes"] or 0) > 0


def test_a_table_is_made_from_a_query_and_replaced(
    spark_lake: SparkLake, rest: Rest, iceberg: RestCatalog, namespace: str
) -> None:
    sql, table = spark_lake.sql, f"{spark_lake.catalog()}.{namespace}.t"
    sql(
        f"CREATE TABLE {table} USING iceberg PARTITIONED BY (bucket(4, id)) TBLPROPERTIES ('kept'='yes') "
        "AS SELECT 1L AS id, 'a' AS name"
    )
    made = rest.load(namespace, "t")["metadata"]
    assert (len(made["snapshots"]), made["properties"]["kept"]) == (1, "yes")

    sql(f"REPLACE TABLE {table} USING iceberg AS SELECT 2L AS id, true AS flag")
    sql(f"CREATE OR REPLACE TABLE {table} (id bigint, day date) USING iceberg PARTITIONED BY (day)")
    replaced = rest.load(namespace, "t")["metadata"]
    assert replaced["table-uuid"] == made["table-uuid"]
    assert replaced["current-snapshot-id"] in (None, -1)
    assert len(replaced["snapshots"]) == 2
    assert [field["name"] for field in replaced["schemas"][-1]["fields"]] == ["id", "day"]

    sql(f"INSERT INTO {table} VALUES (1, DATE'2026-01-01'), (2, DATE'2026-01-02')")
    sql(f"INSERT OVERWRITE {table} PARTITION (day = DATE'2026-01-01') SELECT 9L")
    assert sql(f"SELECT id, day = DATE'2026-01-02' FROM {table} ORDER BY id") == [(2, True), (9, False)]
    assert sql(f"SELECT * FROM {table} VERSION AS OF {made['current-snapshot-id']}") == [(1, "a")]
    assert len(rows(iceberg.load_table((namespace, "t")))) == 2


def test_a_staged_table_that_fails_leaves_nothing_behind(
    spark_lake: SparkLake, rest: Rest, namespace: str
) -> None:
    table = f"{spark_lake.catalog()}.{namespace}.t"
    with pytest.raises(SparkRefused, match="no luck"):
        spark_lake.sql(
            f"CREATE TABLE {table} USING iceberg AS SELECT CAST(raise_error('no luck') AS int) AS x"
        )
    assert rest.tables(namespace) == []
