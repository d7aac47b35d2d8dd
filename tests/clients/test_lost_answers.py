"""A commit lands and its answer is lost on the way. No engine may lose rows over that, or double them.

DuckDB is the dangerous one: it repeats the commit, and if the repeat is refused it deletes the files that the
landed commit points to. So the server must see that a repeat is one.
"""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitStateUnknownException, ServiceUnavailableError
from pyspark.sql import SparkSession
from requests import exceptions as http_errors

from spark_jobs.session import attach
from tests.clients.duckdb_client import DuckLake
from tests.clients.lossy_proxy import Loss, LossyProxy
from tests.clients.pyiceberg_client import rows
from tests.clients.spark_client import SparkLake, s3_options
from tests.harness.rest import Rest
from tests.harness.stacks import Stack

COMMIT = "/transactions/commit"
REPEATED = [Loss.DROPPED, Loss.ERROR_500, Loss.ERROR_503, Loss.ERROR_504]  # DuckDB repeats a POST after these


@pytest.fixture
def proxy(stack: Stack) -> Iterator[LossyProxy]:
    with LossyProxy(stack.url) as running:
        yield running


@pytest.fixture
def far_duck(stack: Stack, proxy: LossyProxy) -> Iterator[DuckLake]:
    with DuckLake(stack, url=proxy.url) as lake:
        yield lake


def test_duckdb_insert(
    far_duck: DuckLake, proxy: LossyProxy, iceberg: RestCatalog, rest: Rest, namespace: str
) -> None:
    table = f"lake.{namespace}.t"
    far_duck.sql(f"CREATE TABLE {table} AS SELECT 0 AS id")
    for number, loss in enumerate(REPEATED, start=1):
        before = rest.head()
        proxy.lose("POST", COMMIT, loss)
        far_duck.sql(f"INSERT INTO {table} VALUES ({number})")
        assert rest.head() == before + 1
    assert [status for _, _, status in proxy.lost] == [204] * len(REPEATED)
    assert far_duck.sql(f"SELECT id FROM {table} ORDER BY id") == [(n,) for n in range(len(REPEATED) + 1)]
    assert rows(iceberg.load_table((namespace, "t"))) == [(n,) for n in range(len(REPEATED) + 1)]


def test_duckdb_update_delete_and_merge(
    far_duck: DuckLake, proxy: LossyProxy, iceberg: RestCatalog, namespace: str
) -> None:
    table = f"lake.{namespace}.t"
    far_duck.sql(f"CREATE TABLE {table} AS SELECT i::BIGINT AS id, 'a' AS name FROM range(4) r(i)")
    merge = f"MERGE INTO {table} t USING (SELECT 3 AS id) s ON t.id = s.id"
    for statement in (
        f"UPDATE {table} SET name = 'b' WHERE id = 1",
        f"DELETE FROM {table} WHERE id = 2",
        f"{merge} WHEN MATCHED THEN UPDATE SET name = 'c'",
        f"BEGIN; INSERT INTO {table} VALUES (4, 'd'); DELETE FROM {table} WHERE id = 0; COMMIT",
    ):
        proxy.lose("POST", COMMIT, Loss.DROPPED)
        far_duck.sql(statement)
    assert len(proxy.lost) == 4
    assert rows(iceberg.load_table((namespace, "t"))) == [(1, "b"), (3, "c"), (4, "d")]


@pytest.mark.parametrize("loss", REPEATED)
def test_duckdb_create_as_select(
    far_duck: DuckLake, proxy: LossyProxy, iceberg: RestCatalog, namespace: str, loss: Loss
) -> None:
    proxy.lose("POST", "/tables/made", loss)
    far_duck.sql(f"CREATE TABLE lake.{namespace}.made AS SELECT 1 AS id")
    assert [status for _, _, status in proxy.lost] == [200]
    assert far_duck.sql(f"SELECT id FROM lake.{namespace}.made") == [(1,)]
    assert rows(iceberg.load_table((namespace, "made"))) == [(1,)]


def test_duckdb_two_tables(
    far_duck: DuckLake, proxy: LossyProxy, iceberg: RestCatalog, namespace: str
) -> None:
    for name in ("a", "b"):
        far_duck.sql(f"CREATE TABLE lake.{namespace}.{name} AS SELECT 1 AS id")
    proxy.lose("POST", COMMIT, Loss.DROPPED)
    far_duck.sql(
        f"BEGIN; INSERT INTO lake.{namespace}.a VALUES (2); INSERT INTO lake.{namespace}.b VALUES (2); COMMIT"
    )
    assert len(proxy.lost) == 1
    for name in ("a", "b"):
        assert rows(iceberg.load_table((namespace, name))) == [(1,), (2,)]


def test_duckdb_alters_one_table_and_fills_another(
    far_duck: DuckLake, proxy: LossyProxy, iceberg: RestCatalog, namespace: str
) -> None:
    """The changed schema carries no snapshot to know it by; the other table of the same commit does."""
    for name in ("a", "b"):
        far_duck.sql(f"CREATE TABLE lake.{namespace}.{name} AS SELECT 1 AS id")
    proxy.lose("POST", COMMIT, Loss.DROPPED)
    far_duck.sql(
        f"BEGIN; ALTER TABLE lake.{namespace}.a ADD COLUMN more INT; "
        f"INSERT INTO lake.{namespace}.b VALUES (2); COMMIT"
    )
    assert len(proxy.lost) == 1
    assert iceberg.load_table((namespace, "a")).schema().column_names == ["id", "more"]
    assert rows(iceberg.load_table((namespace, "b"))) == [(1,), (2,)]


def test_duckdb_alters_a_table(
    far_duck: DuckLake, proxy: LossyProxy, iceberg: RestCatalog, namespace: str
) -> None:
    far_duck.sql(f"CREATE TABLE lake.{namespace}.t AS SELECT 1 AS id")
    proxy.lose("POST", COMMIT, Loss.DROPPED)
    far_duck.sql(f"ALTER TABLE lake.{namespace}.t ADD COLUMN more INT")
    assert len(proxy.lost) == 1
    assert rows(iceberg.load_table((namespace, "t"))) == [(1, None)]


def test_duckdb_told_to_keep_files_survives_a_502(
    stack: Stack, proxy: LossyProxy, iceberg: RestCatalog, namespace: str
) -> None:
    """DuckDB does not repeat after 502: only the client can keep the files then."""
    with DuckLake(stack, url=proxy.url, options=", REMOVE_FILES_ON_DELETE false") as careful:
        careful.sql(f"CREATE TABLE lake.{namespace}.t AS SELECT 1 AS id")
        proxy.lose("POST", COMMIT, Loss.ERROR_502)
        with pytest.raises(duckdb.Error, match="Failed to commit"):
            careful.sql(f"INSERT INTO lake.{namespace}.t VALUES (2)")
    assert rows(iceberg.load_table((namespace, "t"))) == [(1,), (2,)]


@pytest.mark.parametrize("loss", [Loss.DROPPED, Loss.ERROR_500, Loss.ERROR_503])
def test_spark_insert_and_create(
    spark: SparkSession,
    spark_lake: SparkLake,
    stack: Stack,
    proxy: LossyProxy,
    iceberg: RestCatalog,
    namespace: str,
    loss: Loss,
) -> None:
    """Spark looks at the table when it does not know, and finds that its snapshot is there."""
    catalog = f"far_{urlport(proxy)}"
    attach(spark, catalog, proxy.url, s3=s3_options(stack))
    proxy.lose("POST", "/tables/t", loss)
    spark_lake.sql(f"CREATE TABLE {catalog}.{namespace}.t USING iceberg AS SELECT 1L AS id")
    proxy.lose("POST", "/tables/t", loss)
    spark_lake.sql(f"INSERT INTO {catalog}.{namespace}.t VALUES (2)")
    assert len(proxy.lost) == 2
    assert rows(iceberg.load_table((namespace, "t"))) == [(1,), (2,)]


@pytest.mark.parametrize("loss", [Loss.DROPPED, Loss.ERROR_500, Loss.ERROR_502, Loss.ERROR_503])
def test_pyiceberg_append(
    stack: Stack, proxy: LossyProxy, iceberg: RestCatalog, namespace: str, loss: Loss
) -> None:
    """PyIceberg says that it does not know, and leaves the files alone."""
    far = RestCatalog("far", **{**stack.client_properties, "uri": proxy.url})
    table = far.create_table((namespace, "t"), pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [1]}))
    proxy.lose("POST", "/tables/t", loss)
    with pytest.raises((CommitStateUnknownException, ServiceUnavailableError, http_errors.ConnectionError)):
        table.append(pa.table({"id": [2]}))
    assert len(proxy.lost) == 1
    assert rows(iceberg.load_table((namespace, "t"))) == [(1,), (2,)]
    table.refresh().append(pa.table({"id": [3]}))
    assert rows(iceberg.load_table((namespace, "t"))) == [(1,), (2,), (3,)]


def urlport(proxy: LossyProxy) -> str:
    return proxy.url.rpartition(":")[2]
