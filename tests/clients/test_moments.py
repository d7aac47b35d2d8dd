"""Every number of a history, read back as `main@N` through each engine, is what it was then."""

from __future__ import annotations

import random
import uuid
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyiceberg.types import LongType

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
        return {name: _model(*duck.named(f"SELECT * FROM lake.{namespace}.{name}")) for name in names}


def _by_spark(lake: SparkLake, warehouse: str, namespace: str) -> Moment:
    here = f"{lake.catalog(warehouse)}.{namespace}"
    found = {}
    for _, name, _ in lake.sql(f"SHOW TABLES IN {here}"):
        columns = lake.session.table(f"{here}.{name}").columns
        found[name] = _model(columns, lake.sql(f"SELECT * FROM {here}.{name}"))
    return found


def _history(stack: Stack, commits: int, seed: str) -> RandomHistory:
    """In a warehouse of its own, so that every number is the history's."""
    made = RandomHistory(stack, f"moments-{uuid.uuid4().hex[:8]}", random.Random(seed))
    made.run(commits)
    return made


def test_every_number_is_read_back(stack: Stack) -> None:
    history = _history(stack, 30, "short")
    for number, moment in history.moments.items():
        past = f"{history.warehouse}@{number}"
        assert _by_pyiceberg(stack, past, history.namespace) == moment, f"PyIceberg at {number}"
        assert _by_duckdb(stack, past, history.namespace) == moment, f"DuckDB at {number}"
    _check_times(stack, history)


def test_some_numbers_are_read_back_by_spark(stack: Stack, spark_lake: SparkLake) -> None:
    history = _history(stack, 12, "spark")
    fullest = sorted(history.moments, key=lambda number: -len(history.moments[number]))
    for number in fullest[:3]:
        found = _by_spark(spark_lake, f"{history.warehouse}@{number}", history.namespace)
        assert found == history.moments[number], number


@pytest.mark.proof
def test_two_hundred_numbers_are_read_back_by_all(stack: Stack, spark_lake: SparkLake) -> None:
    history = _history(stack, 200, "long")
    assert len(history.moments) == 201
    for number, moment in history.moments.items():
        past = f"{history.warehouse}@{number}"
        assert _by_pyiceberg(stack, past, history.namespace) == moment, f"PyIceberg at {number}"
        assert _by_duckdb(stack, past, history.namespace) == moment, f"DuckDB at {number}"
        assert _by_spark(spark_lake, past, history.namespace) == moment, f"Spark at {number}"
    _check_times(stack, history)


@pytest.mark.parametrize("own_stack", ["embedded"], indirect=True)
def test_moments_outlive_their_metadata_files(own_stack: Stack) -> None:
    """A table that deletes its old metadata files, and is renamed and dropped: its moments are rebuilt."""
    catalog, rest = pyiceberg_client.catalog(own_stack), Rest(own_stack.url)
    catalog.create_namespace("db")
    keep_one = {
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "1",
    }
    table = catalog.create_table("db.t", pa.schema([("id", pa.int64())]), properties=keep_one)
    moments = {}
    for value in range(1, 4):
        table.append(pa.table({"id": [value]}))
        with table.update_schema() as update:
            update.add_column(f"c{value}", LongType())
        moments[rest.head()] = _by_pyiceberg(own_stack, "main", "db")
    catalog.rename_table("db.t", "db.renamed")
    table = catalog.load_table("db.renamed")
    for value in range(4, 7):
        table.append(pa.table({"id": [value]}))
        moments[rest.head()] = _by_pyiceberg(own_stack, "main", "db")
    own_stack.server.restart()  # so that nothing is in its memory
    for number, moment in moments.items():
        assert _by_pyiceberg(own_stack, f"main@{number}", "db") == moment, number
    catalog.drop_table("db.renamed")
    own_stack.server.restart()
    for number, moment in moments.items():
        assert _by_pyiceberg(own_stack, f"main@{number}", "db") == moment, number


def _check_times(stack: Stack, history: RandomHistory) -> None:
    """A time means the last commit at or before it."""
    rest = Rest(stack.url)
    events = rest.lake("GET", f"{history.warehouse}/events", params={"limit": 1000}).json()["events"]
    assert [event["number"] for event in events] == [*history.moments]
    last = {event["time-ms"]: event["number"] for event in events}
    for time_ms, number in last.items():
        at = datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
        answer = rest.ok("GET", "/v1/config", params={"warehouse": f"{history.warehouse}@{at[:-6]}Z"})
        assert answer["overrides"]["prefix"] == f"{history.warehouse}@{number}"
    before = rest.ok("GET", "/v1/config", params={"warehouse": f"{history.warehouse}@2020-01-01T00:00:00Z"})
    assert before["overrides"]["prefix"] == f"{history.warehouse}@0"
