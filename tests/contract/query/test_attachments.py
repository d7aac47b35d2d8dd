"""Query processes keep what they attached; no query sees another state for it."""

from __future__ import annotations

import uuid

import httpx
import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog

from tests.clients import pyiceberg_client
from tests.contract.query.lake import QueryLake, orders


def test_a_query_after_a_commit_sees_it(lake: QueryLake) -> None:
    table = lake.orders()
    for number in range(4, 8):
        assert lake.rows("SELECT max(id) FROM orders") == [(number - 1,)]
        table.append(orders([number]))
    assert lake.rows("SELECT max(id) FROM orders") == [(7,)]


def test_a_warehouse_that_is_dropped_and_made_again(lake: QueryLake) -> None:
    """The same name and the same number, other rows."""
    name, url = f"w{uuid.uuid4().hex[:8]}", lake.stack.url
    for value in (1, 2):
        httpx.post(f"{url}/lake/v1/warehouses", json={"name": name}, timeout=60).raise_for_status()
        catalog: RestCatalog = pyiceberg_client.catalog(lake.stack, warehouse=name)
        catalog.create_namespace("s")
        data = pa.table({"a": [value]})
        catalog.create_table("s.t", data.schema).append(data)
        found = [lake.ask("SELECT a FROM s.t", warehouse=name) for _ in range(3)]
        assert [one["rows"] for one in found] == [[{"a": value}]] * 3
        assert {one["as_of"]["number"] for one in found} == {3}
        if value == 1:
            catalog.drop_table("s.t")
            catalog.drop_namespace("s")
            httpx.delete(f"{url}/lake/v1/warehouses/{name}", timeout=60).raise_for_status()


def test_an_open_transaction_shows_each_write(lake: QueryLake) -> None:
    lake.orders()
    url = lake.stack.url
    name = f"t{uuid.uuid4().hex[:8]}"
    httpx.post(f"{url}/lake/v1/main/transactions", json={"name": name}, timeout=60).raise_for_status()
    inside = pyiceberg_client.catalog(lake.stack, warehouse=f"main~{name}")
    table = inside.load_table((lake.namespace, "orders"))
    for number in (4, 5):
        table.append(orders([number]))
        assert lake.rows("SELECT max(id) FROM orders", warehouse=f"main~{name}") == [(number,)]
    assert lake.rows("SELECT max(id) FROM orders") == [(3,)]
    httpx.delete(f"{url}/lake/v1/main/transactions/{name}", timeout=60).raise_for_status()
