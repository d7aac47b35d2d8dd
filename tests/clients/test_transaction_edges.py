"""Open transactions where they end badly, touch names instead of rows, or meet other writers."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitFailedException, ForbiddenError, NoSuchTableError

from tests.clients import pyiceberg_client
from tests.clients.duckdb_client import DuckLake
from tests.clients.pyiceberg_client import rows
from tests.clients.spark_client import SparkLake, SparkRefused
from tests.harness.rest import Rest
from tests.harness.stacks import Stack

ONE = pa.table({"id": [1]})


@pytest.fixture
def name() -> str:
    return f"edge-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def two_tables(iceberg: RestCatalog, namespace: str) -> str:
    """A namespace with the tables `a` and `b`, one row in each."""
    for table in ("a", "b"):
        iceberg.create_table((namespace, table), ONE.schema).append(ONE)
    return namespace


def test_names_change_inside_and_all_at_once_outside(
    stack: Stack, rest: Rest, iceberg: RestCatalog, two_tables: str, name: str
) -> None:
    """Rename and write, drop, re-create a dropped name, make a namespace with a table."""
    rest.open_transaction(name)
    inside = pyiceberg_client.catalog(stack, f"main~{name}")
    inside.rename_table((two_tables, "a"), (two_tables, "renamed"))
    inside.load_table((two_tables, "renamed")).append(pa.table({"id": [2]}))
    inside.drop_table((two_tables, "b"))
    inside.create_table((two_tables, "b"), pa.schema([("name", pa.string())])).append(
        pa.table({"name": ["new"]})
    )
    inside.create_table((two_tables, "a"), ONE.schema).append(pa.table({"id": [3]}))
    inside.create_namespace((two_tables, "inner"), {"k": "v"})
    inside.create_table((two_tables, "inner", "t"), ONE.schema).append(ONE)
    assert inside.list_namespaces((two_tables,)) == [(two_tables, "inner")]
    assert sorted(iceberg.list_tables((two_tables,))) == [(two_tables, "a"), (two_tables, "b")]
    assert iceberg.list_namespaces((two_tables,)) == []
    assert rows(iceberg.load_table((two_tables, "a"))) == [(1,)]

    published = rest.publish(name)
    assert published.status_code == 200, published.text
    assert rows(iceberg.load_table((two_tables, "renamed"))) == [(1,), (2,)]
    assert rows(iceberg.load_table((two_tables, "a"))) == [(3,)]
    assert rows(iceberg.load_table((two_tables, "b"))) == [("new",)]
    assert rows(iceberg.load_table((two_tables, "inner", "t"))) == [(1,)]
    assert iceberg.load_namespace_properties((two_tables, "inner"))["k"] == "v"
    before = pyiceberg_client.catalog(stack, f"main@{published.json()['number'] - 1}")
    assert rows(before.load_table((two_tables, "b"))) == [(1,)]
    with DuckLake(stack) as duck:
        assert duck.sql(f"SELECT id FROM lake.{two_tables}.renamed ORDER BY id") == [(1,), (2,)]
        duck.sql(f"INSERT INTO lake.{two_tables}.renamed VALUES (4)")
    assert rows(iceberg.load_table((two_tables, "renamed"))) == [(1,), (2,), (4,)]


def test_spark_keeps_views_and_replaced_tables_inside(
    spark_lake: SparkLake, stack: Stack, rest: Rest, iceberg: RestCatalog, two_tables: str, name: str
) -> None:
    rest.open_transaction(name)
    sql, here = spark_lake.sql, f"{spark_lake.catalog(f'main~{name}')}.{two_tables}"
    sql(f"CREATE OR REPLACE TABLE {here}.a USING iceberg AS SELECT 'x' AS name")
    sql(f"CREATE VIEW {here}.v AS SELECT id FROM {here}.b")
    sql(f"CREATE OR REPLACE VIEW {here}.v AS SELECT id + 1 AS id FROM {here}.b")
    sql(f"DELETE FROM {here}.b")
    assert sql(f"SELECT * FROM {here}.a") == [("x",)]
    assert sql(f"SELECT * FROM {here}.v") == []
    assert rows(iceberg.load_table((two_tables, "a"))) == [(1,)]
    assert iceberg.list_views((two_tables,)) == []
    assert rest.publish(name).status_code == 200
    assert rows(iceberg.load_table((two_tables, "a"))) == [("x",)]
    assert rows(iceberg.load_table((two_tables, "b"))) == []
    assert iceberg.list_views((two_tables,)) == [(two_tables, "v")]


def test_a_purge_inside_waits_for_the_publish(
    spark_lake: SparkLake, rest: Rest, iceberg: RestCatalog, two_tables: str, name: str
) -> None:
    files = iceberg.load_table((two_tables, "a")).inspect.files()["file_path"].to_pylist()
    here = f"{spark_lake.catalog(f'main~{name}')}.{two_tables}"
    rest.open_transaction(name)
    spark_lake.sql(f"DROP TABLE {here}.a PURGE")
    assert rest.lake("DELETE", f"main/transactions/{name}").status_code == 204
    assert rows(iceberg.load_table((two_tables, "a"))) == [(1,)]
    rest.open_transaction(name)
    spark_lake.sql(f"DROP TABLE {here}.a PURGE")
    assert rows(iceberg.load_table((two_tables, "a"))) == [(1,)]
    io = iceberg.load_table((two_tables, "a")).io
    assert rest.publish(name).status_code == 200
    assert [io.new_input(file).exists() for file in files] == [False]
    assert rest.tables(two_tables) == ["b"]


def test_no_time_shows_half_of_a_transaction(
    stack: Stack, rest: Rest, iceberg: RestCatalog, two_tables: str, name: str
) -> None:
    """Nor does a DuckDB transaction that began in the middle of the work: it reads as of its own begin."""
    rest.open_transaction(name)
    inside = pyiceberg_client.catalog(stack, f"main~{name}")
    inside.load_table((two_tables, "a")).append(pa.table({"id": [2]}))
    time.sleep(0.005)  # so that milliseconds lie between the two, on either side
    with DuckLake(stack) as begun:
        begun.sql("BEGIN; SELECT 1")
        middle = datetime.now(UTC)
        time.sleep(0.005)
        inside.load_table((two_tables, "b")).append(pa.table({"id": [2]}))
        assert rest.publish(name).status_code == 200
        seen = [begun.sql(f"SELECT id FROM lake.{two_tables}.{table} ORDER BY id") for table in ("a", "b")]
        begun.sql("COMMIT")
    assert seen == [[(1,)], [(1,)]]
    with DuckLake(stack) as duck:
        at = f"AT (TIMESTAMP => TIMESTAMP '{middle:%F %T.%f}')"
        for table in ("a", "b"):
            assert duck.sql(f"SELECT id FROM lake.{two_tables}.{table} {at}") == [(1,)]
    for table in ("a", "b"):
        found = iceberg.load_table((two_tables, table))
        then = found.snapshot_as_of_timestamp(int(middle.timestamp() * 1000))
        assert then is not None
        assert rows(found, snapshot_id=then.snapshot_id) == [(1,)]


def test_two_transactions_on_different_tables_both_publish(
    stack: Stack, rest: Rest, iceberg: RestCatalog, two_tables: str, name: str
) -> None:
    for table in ("a", "b"):
        rest.open_transaction(f"{name}-{table}")
    for table in ("a", "b"):
        inside = pyiceberg_client.catalog(stack, f"main~{name}-{table}")
        inside.load_table((two_tables, table)).append(pa.table({"id": [2]}))
        other = "b" if table == "a" else "a"
        assert rows(inside.load_table((two_tables, other))) == [(1,)]
    for table in ("b", "a"):
        assert rest.publish(f"{name}-{table}").status_code == 200
    for table in ("a", "b"):
        assert rows(iceberg.load_table((two_tables, table))) == [(1,), (2,)]


def test_a_change_that_commutes_is_carried_over(
    stack: Stack, rest: Rest, iceberg: RestCatalog, two_tables: str, name: str
) -> None:
    """A property set inside, rows added outside: both are there afterwards."""
    rest.open_transaction(name)
    inside = pyiceberg_client.catalog(stack, f"main~{name}")
    with inside.load_table((two_tables, "a")).transaction() as transaction:
        transaction.set_properties(owner="me")
    inside.load_table((two_tables, "b")).append(pa.table({"id": [2]}))
    iceberg.load_table((two_tables, "a")).append(pa.table({"id": [9]}))
    published = rest.publish(name)
    assert published.status_code == 200, published.text
    found = iceberg.load_table((two_tables, "a"))
    assert (found.properties["owner"], rows(found)) == ("me", [(1,), (9,)])
    assert rows(iceberg.load_table((two_tables, "b"))) == [(1,), (2,)]


def test_a_name_taken_meanwhile_is_a_conflict(
    stack: Stack, rest: Rest, iceberg: RestCatalog, two_tables: str, name: str
) -> None:
    rest.open_transaction(name)
    inside = pyiceberg_client.catalog(stack, f"main~{name}")
    inside.create_table((two_tables, "new"), ONE.schema).append(ONE)
    iceberg.create_table((two_tables, "new"), pa.schema([("other", pa.string())]))
    refused = rest.publish(name)
    assert (refused.status_code, f"{two_tables}.new" in refused.text) == (409, True)
    assert iceberg.load_table((two_tables, "new")).schema().column_names == ["other"]


def test_a_late_writer_gets_nowhere(
    stack: Stack, rest: Rest, iceberg: RestCatalog, two_tables: str, name: str
) -> None:
    rest.open_transaction(name, **{"ttl-s": 1})
    inside = pyiceberg_client.catalog(stack, f"main~{name}")
    table = inside.load_table((two_tables, "a"))
    with DuckLake(stack, f"main~{name}") as duck:
        duck.sql("BEGIN")
        duck.sql(f"INSERT INTO lake.{two_tables}.a VALUES (2)")
        while rest.lake("GET", f"main/transactions/{name}").json()["state"] == "open":
            time.sleep(0.05)
        with pytest.raises(duckdb.Error, match="expired"):
            duck.sql("COMMIT")
    # PyIceberg looks at the table again after a conflict, and then it is the look that is refused.
    with pytest.raises((CommitFailedException, NoSuchTableError), match="expired"):
        table.append(pa.table({"id": [3]}))
    assert rest.publish(name).status_code == 409
    assert rows(iceberg.load_table((two_tables, "a"))) == [(1,)]
    rest.open_transaction(name)  # the name is free again
    assert rest.publish(name).status_code == 200


def test_an_aborted_transaction_stops_spark(
    spark_lake: SparkLake, rest: Rest, iceberg: RestCatalog, two_tables: str, name: str
) -> None:
    rest.open_transaction(name)
    here = f"{spark_lake.catalog(f'main~{name}')}.{two_tables}"
    spark_lake.sql(f"INSERT INTO {here}.a VALUES (2)")
    assert rest.lake("DELETE", f"main/transactions/{name}").status_code == 204
    with pytest.raises(SparkRefused, match="cannot be found"):
        spark_lake.sql(f"INSERT INTO {here}.a VALUES (3)")
    assert rows(iceberg.load_table((two_tables, "a"))) == [(1,)]
    # The worker's next turn with the same name and the same Spark catalog.
    rest.open_transaction(name)
    spark_lake.sql(f"INSERT INTO {here}.a VALUES (4)")
    assert rest.publish(name).status_code == 200
    assert rows(iceberg.load_table((two_tables, "a"))) == [(1,), (4,)]


def _by_duckdb(stack: Stack, warehouse: str, statement: str) -> None:
    with DuckLake(stack, warehouse) as duck:
        duck.sql(statement)


def test_the_past_cannot_be_written_to(
    spark_lake: SparkLake, stack: Stack, rest: Rest, two_tables: str
) -> None:
    number = rest.head()
    past = f"main@{number}"
    attempts: list[Callable[[], object]] = [
        lambda: _by_duckdb(stack, past, f"INSERT INTO lake.{two_tables}.a VALUES (2)"),
        lambda: _by_duckdb(stack, past, f"CREATE TABLE lake.{two_tables}.c AS SELECT 1 AS id"),
        lambda: _by_duckdb(stack, past, f"DROP TABLE lake.{two_tables}.a"),
        lambda: spark_lake.sql(f"INSERT INTO {spark_lake.catalog(past)}.{two_tables}.a VALUES (2)"),
        lambda: spark_lake.sql(f"CREATE TABLE {spark_lake.catalog(past)}.{two_tables}.c (id int)"),
        lambda: pyiceberg_client.catalog(stack, past).load_table((two_tables, "a")).append(ONE),
        lambda: pyiceberg_client.catalog(stack, past).create_namespace((two_tables, "inner")),
        lambda: pyiceberg_client.catalog(stack, past).drop_table((two_tables, "a")),
    ]
    for attempt in attempts:
        with pytest.raises((duckdb.Error, SparkRefused, ForbiddenError), match="is a past moment of main"):
            attempt()
    assert rest.head() == number


def test_an_unknown_transaction_and_a_number_to_come(stack: Stack, rest: Rest) -> None:
    for warehouse in ("main~nobody", f"main@{rest.head() + 1}", "main@2999-01-01T00:00:00Z"):
        with pytest.raises(Exception, match="does not exist"):
            pyiceberg_client.catalog(stack, warehouse)
