"""One engine makes a table, all three write to it in turn, and all three read the same rows."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from tests.clients.duckdb_client import DuckLake
from tests.clients.pyiceberg_client import rows
from tests.clients.spark_client import MERGE_ON_READ, SparkLake

Sql = Callable[[str], list[tuple[object, ...]]]


def _made_by_spark(sql: Sql, table: str) -> None:
    sql(
        f"CREATE TABLE {table} (id bigint, kind string, name string) PARTITIONED BY (kind) "
        f"TBLPROPERTIES ({MERGE_ON_READ})"
    )


def _made_by_duckdb(duck: DuckLake, table: str) -> None:
    duck.sql(f"CREATE TABLE {table} (id BIGINT, kind VARCHAR, name VARCHAR) PARTITIONED BY (kind)")


def _made_by_pyiceberg(iceberg: RestCatalog, namespace: str) -> None:
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "kind", StringType()),
        NestedField(3, "name", StringType()),
    )
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "kind"))
    iceberg.create_table((namespace, "t"), schema, partition_spec=spec)


@pytest.mark.filterwarnings(
    "ignore:Merge on read is not yet supported"
)  # PyIceberg rewrites the file instead
@pytest.mark.parametrize(
    ("stack", "maker"),
    [
        ("embedded", "spark"),
        ("embedded", "pyiceberg"),
        ("postgres-s3", "duckdb"),
        pytest.param("embedded", "duckdb", marks=pytest.mark.proof),
        pytest.param("postgres-s3", "spark", marks=pytest.mark.proof),
        pytest.param("postgres-s3", "pyiceberg", marks=pytest.mark.proof),
    ],
    indirect=["stack"],
)
def test_all_write_and_all_read(
    spark_lake: SparkLake, duck: DuckLake, iceberg: RestCatalog, namespace: str, maker: str
) -> None:
    in_spark, in_duckdb = f"{spark_lake.catalog()}.{namespace}.t", f"lake.{namespace}.t"
    if maker == "spark":
        _made_by_spark(spark_lake.sql, in_spark)
    elif maker == "duckdb":
        _made_by_duckdb(duck, in_duckdb)
    else:
        _made_by_pyiceberg(iceberg, namespace)

    spark_lake.sql(f"INSERT INTO {in_spark} VALUES (1, 'x', 's1'), (2, 'x', 's2'), (3, 'y', 's3')")
    duck.sql(f"INSERT INTO {in_duckdb} VALUES (4, 'x', 'd4'), (5, 'y', 'd5'), (6, 'y', 'd6')")
    table = iceberg.load_table((namespace, "t"))
    table.append(pa.table({"id": [7, 8, 9], "kind": ["x", "x", "y"], "name": ["p7", "p8", "p9"]}))
    # Each changes what another one wrote: Spark and DuckDB by position deletes, PyIceberg by a new file.
    duck.sql(f"DELETE FROM {in_duckdb} WHERE id = 1")
    duck.sql(f"UPDATE {in_duckdb} SET name = 'd7' WHERE id = 7")
    spark_lake.sql(f"DELETE FROM {in_spark} WHERE id = 8")
    spark_lake.sql(f"UPDATE {in_spark} SET name = 's4' WHERE id = 4")
    table.refresh().delete("id = 5")

    expected = [
        (2, "x", "s2"),
        (3, "y", "s3"),
        (4, "x", "s4"),
        (6, "y", "d6"),
        (7, "x", "d7"),
        (9, "y", "p9"),
    ]
    assert spark_lake.sql(f"SELECT id, kind, name FROM {in_spark} ORDER BY id") == expected
    assert duck.sql(f"SELECT id, kind, name FROM {in_duckdb} ORDER BY id") == expected
    assert rows(iceberg.load_table((namespace, "t"))) == expected
    # With a filter on the partition too, which prunes files and the deletes that belong to them.
    assert spark_lake.sql(f"SELECT id FROM {in_spark} WHERE kind = 'y' ORDER BY id") == [(3,), (6,), (9,)]
    assert duck.sql(f"SELECT id FROM {in_duckdb} WHERE kind = 'y' ORDER BY id") == [(3,), (6,), (9,)]
    found = rows(table.refresh(), row_filter="kind = 'y'", selected_fields=("id",))
    assert found == [(3,), (6,), (9,)]
