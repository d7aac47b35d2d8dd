"""Spark alters tables in every way it knows: columns, properties, partitions, order, identifiers."""

from __future__ import annotations

from typing import Any

from pyiceberg.catalog.rest import RestCatalog

from tests.clients.pyiceberg_client import rows
from tests.clients.spark_client import SparkLake
from tests.harness.rest import Rest


def _columns(rest: Rest, namespace: str, table: str = "t") -> dict[str, Any]:
    metadata = rest.load(namespace, table)["metadata"]
    (schema,) = [s for s in metadata["schemas"] if s["schema-id"] == metadata["current-schema-id"]]
    return {field["name"]: field for field in schema["fields"]}


def test_columns_are_added_dropped_renamed_moved_and_widened(
    spark_lake: SparkLake, rest: Rest, iceberg: RestCatalog, namespace: str
) -> None:
    sql, table = spark_lake.sql, f"{spark_lake.catalog()}.{namespace}.t"
    sql(
        f"CREATE TABLE {table} (id int NOT NULL, ratio float, price decimal(5, 2), gone string, "
        "place struct<x: int, y: int>, tags map<string, struct<a: int>>, list array<struct<a: int>>)"
    )
    sql(
        f"INSERT INTO {table} SELECT 1, 1.5, 2.25, 'g', named_struct('x', 1, 'y', 2), "
        "map('k', named_struct('a', 1)), array(named_struct('a', 1))"
    )
    ids = {name: field["id"] for name, field in _columns(rest, namespace).items()}
    for change in (
        "ADD COLUMNS (note string COMMENT 'what it says', place.z int AFTER x)",
        "ADD COLUMNS (tags.value.b int, list.element.b int)",
        "ADD COLUMN first_of_all date FIRST",
        "DROP COLUMN gone",
        "RENAME COLUMN ratio TO share",
        "RENAME COLUMN place.x TO east",
        "ALTER COLUMN id TYPE bigint",
        "ALTER COLUMN share TYPE double",
        "ALTER COLUMN price TYPE decimal(9, 2)",
        "ALTER COLUMN place.y TYPE bigint",
        "ALTER COLUMN note AFTER id",
        "ALTER COLUMN share COMMENT 'of the whole'",
        "ALTER COLUMN id DROP NOT NULL",
        "ADD COLUMN gone int",
    ):
        sql(f"ALTER TABLE {table} {change}")
    columns = _columns(rest, namespace)
    order = ["first_of_all", "id", "note", "share", "price", "place", "tags", "list", "gone"]
    assert list(columns) == order
    assert (columns["id"]["type"], columns["id"]["required"]) == ("long", False)
    assert (columns["share"]["type"], columns["share"]["doc"]) == ("double", "of the whole")
    assert columns["price"]["type"] == "decimal(9, 2)"
    assert [(f["name"], f["type"]) for f in columns["place"]["type"]["fields"]] == [
        ("east", "int"),
        ("z", "int"),
        ("y", "long"),
    ]
    # Identity is by id: a renamed column keeps its own, a new column of an old name gets another.
    assert columns["share"]["id"] == ids["ratio"]
    assert columns["gone"]["id"] not in ids.values()

    sql(f"INSERT INTO {table} (id, gone) VALUES (5000000000, 7)")
    read = (
        f"SELECT id, share, price, gone, place.east, place.z, tags['k'].a, list[0].b FROM {table} ORDER BY id"
    )
    first, second = sql(read)
    assert (first[0], first[1], float(first[2]), *first[3:]) == (1, 1.5, 2.25, None, 1, None, 1, None)
    assert second == (5000000000, None, None, 7, None, None, None, None)
    assert len(rows(iceberg.load_table((namespace, "t")))) == 2


def test_partitions_order_and_identifiers_evolve(
    spark_lake: SparkLake, rest: Rest, iceberg: RestCatalog, namespace: str
) -> None:
    sql, table = spark_lake.sql, f"{spark_lake.catalog()}.{namespace}.t"
    sql(f"CREATE TABLE {table} (id bigint NOT NULL, kind string, at timestamp) PARTITIONED BY (kind)")
    sql(f"INSERT INTO {table} VALUES (1, 'a', TIMESTAMP'2026-01-01 10:00:00')")
    for change in (
        "ADD PARTITION FIELD bucket(4, id) AS shard",
        "ADD PARTITION FIELD days(at)",
        "REPLACE PARTITION FIELD days(at) WITH hours(at) AS at_hour",
        "DROP PARTITION FIELD kind",
        "ADD PARTITION FIELD truncate(2, kind)",
        "DROP PARTITION FIELD shard",
        "WRITE DISTRIBUTED BY PARTITION LOCALLY ORDERED BY kind, id DESC NULLS FIRST",
        "WRITE ORDERED BY id",
        "SET IDENTIFIER FIELDS id",
    ):
        sql(f"ALTER TABLE {table} {change}")
    sql(f"INSERT INTO {table} VALUES (2, 'bcd', TIMESTAMP'2026-01-02 10:00:00')")
    found = iceberg.load_table((namespace, "t"))
    assert [(f.name, str(f.transform)) for f in found.spec().fields] == [
        ("at_hour", "hour"),
        ("kind_trunc_2", "truncate[2]"),
    ]
    assert len(found.specs()) == 7
    assert [str(f.transform) for f in found.sort_order().fields] == ["identity"]
    assert found.schema().identifier_field_names() == {"id"}
    assert {row[0] for row in rows(found)} == {1, 2}
    assert sql(f"SELECT partition.at_hour IS NULL FROM {table}.files ORDER BY record_count, 1") == [
        (False,),
        (True,),
    ]

    sql(f"ALTER TABLE {table} WRITE UNORDERED")
    sql(f"ALTER TABLE {table} DROP IDENTIFIER FIELDS id")
    metadata = rest.load(namespace, "t")["metadata"]
    assert metadata["default-sort-order-id"] == 0
    ids = {field["field-id"] for spec in metadata["partition-specs"] for field in spec["fields"]}
    assert max(ids) == metadata["last-partition-id"]


def test_properties_are_set_and_taken_away(spark_lake: SparkLake, rest: Rest, namespace: str) -> None:
    sql, table = spark_lake.sql, f"{spark_lake.catalog()}.{namespace}.t"
    sql(f"CREATE TABLE {table} (id bigint) COMMENT 'first' TBLPROPERTIES ('a'='1', 'b'='2')")
    sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('a'='3', 'c'='4', 'comment'='second')")
    sql(f"ALTER TABLE {table} UNSET TBLPROPERTIES ('b')")
    properties = rest.load(namespace, "t")["metadata"]["properties"]
    assert {key: properties.get(key) for key in ("a", "b", "c", "comment")} == {
        "a": "3",
        "b": None,
        "c": "4",
        "comment": "second",
    }
    shown = dict(sql(f"SHOW TBLPROPERTIES {table}"))
    assert (shown["a"], shown["format-version"]) == ("3", "2")


def test_a_table_moves_to_format_3_in_place(
    spark_lake: SparkLake, rest: Rest, iceberg: RestCatalog, namespace: str
) -> None:
    sql, table = spark_lake.sql, f"{spark_lake.catalog()}.{namespace}.t"
    sql(f"CREATE TABLE {table} (id bigint)")
    sql(f"INSERT INTO {table} VALUES (1)")
    sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('format-version'='3')")
    sql(f"INSERT INTO {table} VALUES (2), (3)")
    metadata = rest.load(namespace, "t")["metadata"]
    assert (metadata["format-version"], metadata["snapshots"][-1]["first-row-id"]) == (3, 0)
    assert metadata["next-row-id"] == 3  # the rows that were there before get ids with the next snapshot
    read = sql(f"SELECT id, _row_id FROM {table} ORDER BY id")
    assert len({row_id for _, row_id in read}) == 3
    assert [row[0] for row in rows(iceberg.load_table((namespace, "t")))] == [1, 2, 3]
