"""Open transactions by the engines themselves: nothing is visible before the publish, everything after it."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest

from tests.clients import pyiceberg_client
from tests.clients.pinned_readers import Pinned, duckdb_at, pyiceberg_at, watching
from tests.clients.spark_client import SparkLake
from tests.clients.transaction_writers import Work, duckdb_work, pyiceberg_work, spark_work
from tests.harness.rest import Rest
from tests.harness.stacks import Stack

ROUNDS = 2
MADE = [f"made{number}" for number in range(1, ROUNDS + 1)]
Seen = tuple[list[int], list[int], list[str], set[str]]


def _state(number: int) -> Seen:
    """What a reader finds after so many rounds."""
    ids = list(range(number + 1))
    columns = ["id", *(f"extra{n}" for n in ids[1:])]
    return ids, ids, columns, {f"made{n}" for n in ids[1:]}


def _prepare(stack: Stack, namespace: str) -> None:
    catalog = pyiceberg_client.catalog(stack)
    for name in ("a", "b"):
        rows = pa.table({"id": [0]})
        catalog.create_table((namespace, name), rows.schema).append(rows)


def _show(stack: Stack, rest: Rest, namespace: str, work: Work) -> None:
    """Run the rounds under the eyes of pinned readers of two engines."""
    _prepare(stack, namespace)
    name = f"lane-{uuid.uuid4().hex[:8]}"  # the same one each time, as a worker does

    def look(reader: Pinned) -> Seen:
        return (
            reader.ids(namespace, "a"),
            reader.ids(namespace, "b"),
            reader.columns(namespace, "b"),
            reader.which(namespace, MADE),
        )

    with watching(stack, duckdb_at, look) as by_duckdb, watching(stack, pyiceberg_at, look) as by_pyiceberg:
        for number in range(1, ROUNDS + 1):
            rest.open_transaction(name)
            work(f"main~{name}", namespace, number)
            with pyiceberg_at(stack, "main") as outside, pyiceberg_at(stack, f"main~{name}") as inside:
                assert look(outside) == _state(number - 1)
                assert look(inside) == _state(number)
            before = rest.head()
            published = rest.publish(name)
            assert published.status_code == 200, published.text
            assert published.json()["number"] == rest.head() == before + 1
            with pyiceberg_at(stack, "main") as outside:
                assert look(outside) == _state(number)
    allowed = [_state(number) for number in range(ROUNDS + 1)]
    for seen in (by_duckdb, by_pyiceberg):
        assert all(state in allowed for state in seen), [state for state in seen if state not in allowed]
        assert (seen[0], seen[-1]) == (allowed[0], allowed[-1])
    (event,) = rest.lake("GET", "main/events", params={"after": rest.head() - 1}).json()["events"]
    assert {change["name"] for change in event["changes"]} == {"a", "b", f"made{ROUNDS}"}
    # Of the snapshots of one transaction only the last is in the log: no "as of" finds half of the work.
    for table in ("a", "b"):
        assert len(rest.load(namespace, table)["metadata"]["snapshot-log"]) == ROUNDS + 1


def test_spark_writes_two_tables(spark_lake: SparkLake, stack: Stack, rest: Rest, namespace: str) -> None:
    _show(stack, rest, namespace, spark_work(spark_lake))
    head = rest.head()
    for number, warehouse in ((ROUNDS, f"main@{head}"), (ROUNDS - 1, f"main@{head - 1}")):
        here = f"{spark_lake.catalog(warehouse)}.{namespace}"
        assert spark_lake.sql(f"SELECT id FROM {here}.b ORDER BY id") == [(n,) for n in range(number + 1)]
        assert {row[1] for row in spark_lake.sql(f"SHOW TABLES IN {here}")} == {"a", "b", *_state(number)[3]}


def test_duckdb_writes_two_tables(stack: Stack, rest: Rest, namespace: str) -> None:
    _show(stack, rest, namespace, duckdb_work(stack))


def test_pyiceberg_writes_two_tables(stack: Stack, rest: Rest, namespace: str) -> None:
    _show(stack, rest, namespace, pyiceberg_work(stack))


@pytest.mark.parametrize("engine", ["duckdb", "pyiceberg"])
def test_a_table_that_moved_is_named(stack: Stack, rest: Rest, namespace: str, engine: str) -> None:
    _prepare(stack, namespace)
    name = f"lost-{uuid.uuid4().hex[:8]}"
    rest.open_transaction(name)
    work = duckdb_work(stack) if engine == "duckdb" else pyiceberg_work(stack)
    work(f"main~{name}", namespace, 1)
    pyiceberg_client.catalog(stack).load_table((namespace, "b")).append(pa.table({"id": [100]}))
    before = rest.head()
    refused = rest.publish(name)
    assert refused.status_code == 409
    message = refused.json()["error"]["message"]
    assert f"{namespace}.b" in message
    assert f"{namespace}.a" not in message
    assert rest.head() == before
    with pyiceberg_at(stack, "main") as outside:
        assert (outside.ids(namespace, "a"), outside.ids(namespace, "b")) == ([0], [0, 100])
        assert outside.which(namespace, MADE) == set()
    assert rest.lake("DELETE", f"main/transactions/{name}").status_code == 204
