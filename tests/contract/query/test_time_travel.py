"""`as_of`: for any moment of a random history `/query` answers what a model remembers."""

from __future__ import annotations

import random
import uuid

import httpx
import pyarrow as pa
import pytest

from catalog.moments import AtTime
from tests.clients import pyiceberg_client
from tests.clients.random_history import Moment, RandomHistory
from tests.contract.query.lake import QueryLake, orders
from tests.harness.stacks import Stack

NAMES = ("t1", "t2", "t3", "t4")


def _check(stack: Stack, publishes: int, moments: int, seed: int) -> None:
    warehouse = f"w{uuid.uuid4().hex[:8]}"
    history = RandomHistory(stack, warehouse, random.Random(seed))
    history.run(publishes)
    events = history.rest.lake("GET", f"{warehouse}/events", params={"limit": 1000}).json()["events"]
    times = {event["number"]: event["time-ms"] for event in events}
    chosen = random.Random(seed + 1)
    lake = QueryLake(stack, "db")
    for _ in range(moments):
        number = chosen.randint(1, publishes + 1)
        as_of: int | str = number
        if chosen.random() < 0.5:  # by time: the newest commit at that time, which may be a later one
            exact = times[number] + chosen.choice((0, 0, 1))
            time_ms = chosen.choice((exact, chosen.randint(times[1], times[publishes + 1])))
            as_of = chosen.choice((time_ms, str(AtTime(time_ms))))
            number = max(one for one, when in times.items() if when <= time_ms)
        _compare(lake, warehouse, as_of, number, history.moments[number], chosen)
    print(f"{publishes} publishes, {moments} moments by number or time: every answer is the model's")


def _compare(
    lake: QueryLake, warehouse: str, as_of: int | str, number: int, model: Moment, chosen: random.Random
) -> None:
    name = chosen.choice(NAMES)
    table = model.get(name)
    if table is None:
        response = lake.post(f"SELECT * FROM {name}", warehouse=warehouse, as_of=as_of)
        assert response.status_code == 404, response.text
        return
    answer = lake.ask(f"SELECT * FROM {name} ORDER BY id", warehouse=warehouse, as_of=as_of, format="compact")
    assert answer["as_of"]["number"] == number
    assert tuple(column["name"] for column in answer["columns"]) == table.columns
    assert [tuple(row) for row in answer["rows"]] == sorted(table.rows, key=lambda row: row[0] or 0)


def test_random_moments(stack: Stack) -> None:
    _check(stack, publishes=20, moments=50, seed=20)


@pytest.mark.proof
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(2))
def test_many_random_moments(stack: Stack, seed: int) -> None:
    _check(stack, publishes=200, moments=1000, seed=seed)


def test_all_tables_of_a_query_are_of_one_moment(lake: QueryLake) -> None:
    first, second = lake.orders("a"), lake.orders("b")
    number = lake.ask("SELECT 1")["as_of"]["number"]
    first.append(orders([4]))
    second.append(orders([4, 5]))
    counts = "SELECT (SELECT count(*) FROM a), (SELECT count(*) FROM b)"
    assert lake.rows(counts) == [(4, 5)]
    assert lake.rows(counts, as_of=number) == [(3, 3)]
    assert lake.ask("SELECT count(*) FROM a", as_of=number)["freshness_ms"] > 0, "it lacks a later change"
    assert lake.ask("SELECT count(*) FROM a", as_of=number + 1)["freshness_ms"] == 0
    assert lake.rows(counts, as_of=number + 1) == [(4, 3)]
    assert lake.rows(counts, warehouse=f"main@{number}") == [(3, 3)]


def test_single_tables_in_the_sql(lake: QueryLake) -> None:
    table = lake.orders()
    one, two = (snapshot.snapshot_id for snapshot in table.snapshots())
    table.manage_snapshots().create_tag(one, "start").create_branch(one, "side").commit()
    for version in (str(one), "'start'", "'side'"):
        answer = lake.ask(f"SELECT count(*) FROM orders AS o AT (VERSION => {version})", format="compact")
        assert answer["rows"] == [[2]], version
        assert answer["snapshots"] == {f"main.{lake.namespace}.orders": one}
    both = f"SELECT (SELECT count(*) FROM orders AT (VERSION => {one})), (SELECT count(*) FROM orders)"
    assert lake.rows(both) == [(2, 3)]
    at = AtTime(table.snapshots()[1].timestamp_ms)
    assert lake.rows(f"SELECT count(*) FROM orders AT (TIMESTAMP => TIMESTAMPTZ '{at}')") == [(3,)]
    assert lake.rows("SELECT count(*) FROM orders", snapshot_id=one) == [(2,)]
    assert lake.rows("SELECT count(*) FROM orders o", snapshot_id=two) == [(3,)]
    assert "start" in lake.refused("SELECT * FROM orders AT (VERSION => 'end')")["message"]
    assert lake.refused("SELECT * FROM orders", snapshot_id=1)["code"] == 400


def test_before_the_table_existed(lake: QueryLake) -> None:
    number = lake.ask("SELECT 1")["as_of"]["number"]
    lake.orders()
    error = lake.refused("SELECT * FROM orders", as_of=number)
    assert error["code"] == 404
    assert "did not exist as of" in error["message"]
    assert f"(number {number + 1})" in error["message"]


def test_a_dropped_table_is_there_in_the_past(lake: QueryLake) -> None:
    lake.orders()
    number = lake.ask("SELECT 1")["as_of"]["number"]
    url = f"{lake.stack.url}/v1/main/namespaces/{lake.namespace}/tables/orders"
    assert httpx.delete(url).status_code == 204
    assert lake.refused("SELECT * FROM orders")["code"] == 404
    assert lake.rows("SELECT count(*) FROM orders", as_of=number) == [(3,)]


def test_moments_in_words(lake: QueryLake) -> None:
    lake.orders()
    assert lake.rows("SELECT count(*) FROM orders", as_of="now") == [(3,)]
    assert lake.refused("SELECT * FROM orders", as_of="10 years ago")["code"] == 400
    assert lake.refused("SELECT * FROM orders", as_of="1 hour ago")["code"] == 404
    assert lake.refused("SELECT * FROM orders", as_of="2020-01-01")["code"] == 404


def test_several_warehouses(lake: QueryLake) -> None:
    lake.orders()
    other = f"w{uuid.uuid4().hex[:8]}"
    made = httpx.post(f"{lake.stack.url}/lake/v1/warehouses", json={"name": other})
    assert made.status_code == 200
    made = httpx.post(f"{lake.stack.url}/v1/{other}/namespaces", json={"namespace": ["shop"]})
    assert made.status_code == 200

    there = pyiceberg_client.catalog(lake.stack, other)
    there.create_table("shop.orders", pa.schema([("id", pa.int64())])).append(pa.table({"id": [7]}))
    answer = lake.ask(f"SELECT a.id, b.id FROM orders a, {other}.shop.orders b ORDER BY 1", format="compact")
    assert answer["rows"] == [[1, 7], [2, 7], [3, 7]]
    assert {one["warehouse"] for one in answer["as_of"]["warehouses"]} == {"main", other}
    assert lake.rows("SELECT * FROM shop.orders", warehouse=other) == [(7,)]
