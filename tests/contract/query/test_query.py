"""POST /query and GET /query: tables, names, parameters, formats, the summary, errors."""

from __future__ import annotations

import csv
import io

import httpx
import orjson
import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.contract.query.lake import QueryLake


def test_the_answer(lake: QueryLake) -> None:
    table = lake.orders()
    answer = lake.ask(f"SELECT status, count(*) AS n FROM {lake.namespace}.orders GROUP BY 1 ORDER BY 1")
    assert answer["columns"] == [{"name": "status", "type": "VARCHAR"}, {"name": "n", "type": "BIGINT"}]
    assert answer["rows"] == [{"status": "new", "n": 2}, {"status": "paid", "n": 1}]
    assert answer["rowCount"] == 2
    shown = f"main.{lake.namespace}.orders"
    assert answer["snapshots"] == {shown: table.current_snapshot().snapshot_id}  # type: ignore[union-attr]
    assert answer["freshness_ms"] == 0
    assert answer["as_of"]["warehouse"] == "main"
    assert answer["as_of"]["number"] > 0
    assert answer["elapsed_ms"] > 0
    assert answer["query_id"]


def test_names_of_a_table(lake: QueryLake) -> None:
    lake.orders()
    space = lake.namespace
    for name in ("orders", f"{space}.orders", f"main.{space}.orders", f'"main" . "{space}" . "orders"'):
        assert lake.rows(f"SELECT count(*) FROM {name}") == [(3,)], name
        assert lake.rows(f"SELECT o.id FROM {name} AS o WHERE o.id = 2") == [(2,)], name
    assert lake.rows("SELECT orders.id FROM orders WHERE orders.id = 1") == [(1,)]


def test_several_tables_and_named_queries(lake: QueryLake) -> None:
    lake.orders()
    lake.create("customers", pa.table({"id": [1, 2], "name": ["Ada", "Bo"]}))
    sql = """
        WITH orders AS (SELECT id, amount FROM orders WHERE id < 3),
             named AS (FROM customers)
        SELECT named.name, sum(orders.amount) FROM orders JOIN named USING (id) GROUP BY 1 ORDER BY 1
    """
    answer = lake.ask(sql, format="compact")
    assert answer["rows"] == [["Ada", 1.5], ["Bo", 3.0]]
    assert set(answer["snapshots"]) == {f"main.{lake.namespace}.{name}" for name in ("orders", "customers")}


def test_parameters(lake: QueryLake) -> None:
    lake.orders()
    assert lake.rows("SELECT id FROM orders WHERE id = $id", params={"id": 2}) == [(2,)]
    assert lake.rows("SELECT id FROM orders WHERE id > ? AND status = ?", params=[1, "new"]) == [(3,)]
    assert lake.rows("SELECT $1, $2", params=[None, [1, 2]]) == [(None, [1, 2])]
    assert "$id" in lake.refused("SELECT id FROM orders WHERE id = $id")["message"]
    assert "$other" in lake.refused("SELECT 1", params={"other": 1})["message"]
    hostile = "' OR 1=1 --"
    assert lake.rows("SELECT id FROM orders WHERE status = $s", params={"s": hostile}) == []


def test_get(lake: QueryLake) -> None:
    lake.orders()
    params = {"sql": "SELECT id FROM orders WHERE id = $x AND status = $s", "namespace": lake.namespace}
    params |= {"param_x": "2", "param_s": "paid"}
    response = httpx.get(f"{lake.stack.url}/query", params=params, timeout=60)
    assert response.json()["rows"] == [{"id": 2}]
    response = httpx.get(f"{lake.stack.url}/query", params=params | {"format": "csv"}, timeout=60)
    assert response.text == "id\r\n2\r\n"


def test_formats(lake: QueryLake) -> None:
    lake.orders()
    sql, expected = "SELECT id, amount FROM orders ORDER BY id", [(1, 1.5), (2, 3.0), (3, 4.5)]
    assert lake.rows(sql) == expected
    assert [tuple(row.values()) for row in lake.ask(sql)["rows"]] == expected

    lines = [orjson.loads(line) for line in lake.post(sql, format="ndjson").text.splitlines()]
    assert [tuple(line.values()) for line in lines[:-1]] == expected
    assert lines[-1]["summary"]["rowCount"] == 3

    response = lake.post(sql, headers={"Accept": "text/csv"})
    assert response.headers["content-type"].startswith("text/csv")
    found = list(csv.reader(io.StringIO(response.text)))
    assert found == [["id", "amount"], ["1", "1.5"], ["2", "3.0"], ["3", "4.5"]]

    response = lake.post(sql, headers={"Accept": "application/vnd.apache.arrow.stream"})
    read = pa.ipc.open_stream(response.content).read_all()
    assert [tuple(row.values()) for row in read.to_pylist()] == expected
    assert int(response.headers["Calve-Freshness-Ms"]) == 0
    assert orjson.loads(response.headers["Calve-As-Of"])["warehouse"] == "main"
    assert list(orjson.loads(response.headers["Calve-Snapshots"])) == [f"main.{lake.namespace}.orders"]
    assert response.headers["Calve-Query-Id"]

    response = lake.post(sql, format="parquet")
    read = pyarrow.parquet.read_table(io.BytesIO(response.content))
    assert [tuple(row.values()) for row in read.to_pylist()] == expected


def test_a_column_name_twice(lake: QueryLake) -> None:
    assert lake.ask("SELECT 1 AS a, 2 AS a, 3 AS a_1")["rows"] == [{"a": 1, "a_2": 2, "a_1": 3}]


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"format": "xml"}, "format"),
        ({"as_of": "soon"}, "as_of"),
        ({"as_of": "2999-01-01T00:00:00Z"}, "future"),
        ({"as_of": 99999999}, "newest commit"),
        ({"consistency": "eventually"}, "consistency"),
        ({"snapshot_id": 1}, "one table"),
        ({"unknown": 1}, "unknown"),
        ({"warehouse": "main@1", "as_of": 1}, "as_of"),
    ],
)
def test_wrong_requests(lake: QueryLake, more: dict[str, object], word: str) -> None:
    error = lake.refused("SELECT 1", **more)
    assert error["code"] == 400
    assert word in error["message"]


def test_an_unknown_table(lake: QueryLake) -> None:
    lake.orders()
    error = lake.refused("SELECT * FROM ordesr")
    assert (error["code"], error["type"]) == (404, "NoSuchTableException")
    assert f"{lake.namespace}.orders" in error["message"]
    error = lake.refused("SELECT * FROM nowhere.shop.orders")
    assert (error["code"], error["type"]) == (404, "NoSuchWarehouseException")


def test_errors_of_the_engine_are_the_callers(lake: QueryLake) -> None:
    lake.orders()
    error = lake.refused("SELECT idd FROM orders")
    assert error["code"] == 400
    assert '"id"' in error["message"]
    error = lake.refused("SELECT CAST(status AS INTEGER) FROM orders")
    assert error["code"] == 400
    assert lake.refused("SELEC 1")["code"] == 400
    assert lake.refused("SELECT 1; SELECT 2")["code"] == 400
    assert lake.refused("")["code"] == 400
