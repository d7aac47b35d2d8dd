"""Every number of a history, read back as `main@N` through each engine, is what it was then."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pytest
from pyiceberg.catalog.rest import RestCatalog

from tests.clients import pyiceberg_client
from tests.clients.duckdb_client import DuckLake
from tests.clients.random_history import Moment, RandomHistory, TableModel
from tests.clients.spark_client import SparkLake
from tests.harness.rest import Rest
from tests.harness.stacks import Stack


def _model(columns: list[str], rows: list[tuple[int | None, ...]]) -> TableModel:
    return TableModel(tuple(columns), tuple(sorted(rows, key=lambda row: row[0] or 0)))


def _by_pyiceberg(stack: Stack, warehouse: str, namespace: str) -> Moment:
    catalog = pyiceberg_client.catalog(stack, warehouse)
    found = {}
    for identifier in catalog.list_tables((namespace,)):
        read = catalog.load_table(identifier).scan().to_arrow()
        rows = [tuple(row.values()) for row in read.to_pylist()]
        found[identifier[-1]] = _model(read.column_names, rows)
    return found


def _by_duckdb(stack: Stack, warehouse: str, namespace: str) -> Moment:
    with DuckLake(stack, warehouse) as duck:
        listed = "SELECT name FROM (SHOW ALL TABLES) WHERE database = 'lake' AND schema ="
        names = [name for (name,) in duck.sql(f"{listed} '{namespace}'")]
        found = {}
        for name in names:
            columns = [row[0] for row in duck.sql(f"DESCRIBE lake.{namespace}.{name}")]
            found[name] = _model(columns, duck.sql(f"SELECT * FROM lake.{namespace}.{name}"))
        return found


def _by_spark(lake: SparkLake, warehouse: str, namespace: str) -> Moment:
    here = f"{lake.catalog(warehouse)}.{namespace}"
    found = {}
    for _, name, _ in lake.sql(f"SHOW TABLES IN {here}"):
        columns = lake.session.table(f"{here}.{name}").columns
        found[name] = _model(columns, lake.sql(f"SELECT * FROM {here}.{name}"))
    return found


@pytest.fixture
def history(iceberg: RestCatalog, rest: Rest, namespace: str, request: pytest.FixtureRequest) -> RandomHistory:
    made = RandomHistory(iceberg, rest, namespace, random.Random(request.node.name))
    made.run(200 if request.node.get_closest_marker("proof") else 30)
    return made


def test_every_number_is_read_back(history: RandomHistory, stack: Stack, namespace: str) -> None:
    for number, moment in history.moments.items():
        assert _by_pyiceberg(stack, f"main@{number}", namespace) == moment, f"PyIceberg at {number}"
        assert _by_duckdb(stack, f"main@{number}", namespace) == moment, f"DuckDB at {number}"


def test_some_numbers_are_read_back_by_spark(
    history: RandomHistory, spark_lake: SparkLake, namespace: str
) -> None:
    fullest = sorted(history.moments, key=lambda number: -len(history.moments[number]))
    for number in fullest[:3]:
        assert _by_spark(spark_lake, f"main@{number}", namespace) == history.moments[number], number


@pytest.mark.proof
def test_two_hundred_numbers_are_read_back_by_all(
    history: RandomHistory, spark_lake: SparkLake, stack: Stack, namespace: str
) -> None:
    assert len(history.moments) == 201
    for number, moment in history.moments.items():
        assert _by_pyiceberg(stack, f"main@{number}", namespace) == moment, f"PyIceberg at {number}"
        assert _by_duckdb(stack, f"main@{number}", namespace) == moment, f"DuckDB at {number}"
        assert _by_spark(spark_lake, f"main@{number}", namespace) == moment, f"Spark at {number}"


def test_a_time_means_the_last_commit_before_it(history: RandomHistory, stack: Stack, rest: Rest) -> None:
    first = min(history.moments)
    events = rest.lake("GET", "main/events", params={"after": first}).json()["events"]
    assert [event["number"] for event in events] == list(range(first + 1, max(history.moments) + 1))
    for event in events:
        same = [other["number"] for other in events if other["time-ms"] == event["time-ms"]]
        at = datetime.fromtimestamp(event["time-ms"] / 1000, UTC).isoformat(timespec="milliseconds")
        answer = rest.ok("GET", "/v1/config", params={"warehouse": f"main@{at.replace('+00:00', 'Z')}"})
        assert answer["overrides"]["prefix"] == f"main@{max(same)}"
    newest = events[-1]
    at = datetime.fromtimestamp(newest["time-ms"] / 1000, UTC).isoformat().replace("+00:00", "Z")
    found = _by_pyiceberg(stack, f"main@{at}", history.namespace)
    assert found == history.moments[newest["number"]]
