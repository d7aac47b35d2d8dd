"""`/query` with `consistency=fresh`: rows of acknowledged changes that are not published.

No worker runs, so only what a test lands by hand is published.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.clients import pyiceberg_client
from tests.contract.query.lake import QueryLake
from tests.contract.query.test_consistency import in_background
from tests.contract.query.writing_hands import InsertingHand
from tests.harness.stacks import STACKS, Stack, Stacks

Row = dict[str, Any]
ALL = "SELECT id, name, amount FROM orders ORDER BY id"


class Shop(QueryLake):
    """A lake with one source, whose changes have numbers."""

    def __init__(self, stack: Stack) -> None:
        super().__init__(stack, f"f{uuid.uuid4().hex[:8]}")
        object.__setattr__(self, "numbers", itertools.count(1))
        object.__setattr__(
            self, "hand", InsertingHand(stack.url, lambda name: pyiceberg_client.catalog(stack, name))
        )

    numbers: Any
    hand: Any

    def event(
        self, operation: str, before: Row | None, after: Row | None, table: str = "orders", **metadata: Any
    ) -> Row:
        return {
            "sequence": next(self.numbers),
            "timestamp": 1_700_000_000_000,
            "operation": operation,
            "table": f"{self.namespace}.{table}",
            "rowId": str((after or before or {}).get("id", "")),
            "before": before,
            "after": after,
            **({"metadata": metadata} if metadata else {}),
        }

    def send(self, *events: Row) -> str:
        response = httpx.post(
            f"{self.stack.url}/cdc", json={"events": events}, headers={"X-Source-Id": self.namespace}
        )
        assert response.is_success, response.text
        token: str = response.json()["token"]
        return token

    def insert(self, *rows: Row, table: str = "orders", **metadata: Any) -> str:
        return self.send(*(self.event("INSERT", None, row, table, **metadata) for row in rows))

    def land(self) -> None:
        """Land the next job of this namespace, and those before it."""
        until_s = time.monotonic() + 60
        while time.monotonic() < until_s:
            response = self.hand.ask(1)
            if response.status_code == 200:
                self.hand.land(response.json())
                if any(table["namespace"] == [self.namespace] for table in response.json()["tables"]):
                    return
        raise AssertionError(f"no job of {self.namespace}")

    def fresh(self, sql: str = ALL, by: str = "journal", **more: Any) -> list[tuple[Any, ...]]:
        response = self.post(sql, consistency="fresh", format="compact", **more)
        assert response.status_code == 200, response.text
        answer = response.json()
        assert answer["fresh_by"] == response.headers["Calve-Fresh-By"] == by, answer
        return [tuple(row) for row in answer["rows"]]


@pytest.fixture
def shop(stack: Stack) -> Iterator[Shop]:
    found = Shop(stack)
    found.insert(
        {"id": 1, "name": "one", "amount": 1.5},
        {"id": 2, "name": "two", "amount": 2.5},
        {"id": 3, "name": "three", "amount": 3.5},
    )
    found.land()
    yield found
    found.insert({"id": 100})
    found.land()  # nothing is left for other tests


def test_every_kind_of_change(shop: Shop) -> None:
    published = [(1, "one", 1.5), (2, "two", 2.5), (3, "three", 3.5)]
    assert shop.fresh(by="published") == published
    shop.send(
        shop.event("UPDATE", {"id": 1}, {"id": 1, "name": "ONE", "amount": None}),
        shop.event("DELETE", {"id": 2}, None),
        shop.event("INSERT", None, {"id": 4, "name": "four", "amount": 4.5}),
    )
    token = shop.send(
        shop.event("UPDATE", {"id": 3}, {"id": 3, "amount": 33.5}),  # a partial row
        shop.event("UPDATE", {"id": 4}, {"id": 5, "amount": 5.5}),  # a key change of a partial row
    )
    expected = [(1, "ONE", None), (3, "three", 33.5), (5, "four", 5.5)]
    assert shop.fresh() == expected
    answer = shop.ask(ALL, consistency="fresh")
    assert answer["as_of"]["token"] == token
    assert (answer["freshness_ms"], answer["fresh_by"], answer["fresh_reason"]) == (0, "journal", None)
    assert shop.rows(ALL) == published, "committed reads what is published"
    assert "fresh_by" not in shop.ask(ALL)


def test_a_row_that_moves_keeps_what_the_change_leaves_out(shop: Shop) -> None:
    shop.send(
        shop.event("UPDATE", {"id": 1}, {"id": 10, "name": "ten"}),
        shop.event("UPDATE", {"id": 10}, {"id": 11}),
        shop.event("UPDATE", {"id": 11}, {"id": 11, "name": "eleven"}),
        shop.event("DELETE", {"id": 3}, None),
        shop.event("UPDATE", {"id": 3}, {"id": 3, "name": "a new three"}),
    )
    assert shop.fresh() == [(2, "two", 2.5), (3, "a new three", None), (11, "eleven", 1.5)]


def test_a_truncate(shop: Shop) -> None:
    shop.send(shop.event("TRUNCATE", None, None), shop.event("INSERT", None, {"id": 9, "name": "nine"}))
    assert shop.fresh() == [(9, "nine", None)]
    shop.send(shop.event("TRUNCATE", None, None))
    assert shop.fresh() == []


def test_names_of_tables_and_columns(shop: Shop) -> None:
    shop.insert({"id": 4, "name": "four", "amount": 4.5})
    space = shop.namespace
    for sql in (
        f"SELECT max({space}.orders.id) FROM {space}.orders",
        f"SELECT max(orders.id) FROM {space}.orders",
        "SELECT max(o.id) FROM orders AS o JOIN orders AS other ON o.id = other.id",
        f"WITH o AS (FROM orders) SELECT max(o.id) FROM o JOIN main.{space}.orders AS b USING (id)",
        "SELECT max(id) FROM orders WHERE name = $name",
    ):
        params = {"name": "four"} if "$name" in sql else None
        assert shop.fresh(sql, params=params) == [(4,)], sql
    types = shop.ask("SELECT * FROM orders LIMIT 1")["columns"]
    assert shop.ask("SELECT * FROM orders LIMIT 1", consistency="fresh")["columns"] == types


def test_later_queries_of_the_same_process(shop: Shop) -> None:
    """Nothing of a query is left for the next one, also if it fails."""
    shop.insert({"id": 4, "name": "four", "amount": 4.5})
    for _ in range(3):
        assert shop.fresh("SELECT count(*) FROM orders") == [(4,)]
        assert shop.refused("SELECT error('no') FROM orders", consistency="fresh")["code"] == 400
        assert shop.rows("SELECT count(*) FROM orders") == [(3,)]
    shop.insert({"id": 5, "name": "five", "amount": 5.5})
    assert shop.fresh("SELECT count(*) FROM orders") == [(5,)]


def test_formats_and_explain(shop: Shop) -> None:
    shop.insert({"id": 4, "name": "four", "amount": 4.5})
    csv = shop.post("SELECT count(*) AS n FROM orders", consistency="fresh", format="csv")
    assert (csv.text, csv.headers["Calve-Fresh-By"]) == ("n\r\n4\r\n", "journal")
    explained = shop.ask("SELECT * FROM orders", consistency="fresh", explain=True)
    assert explained["fresh_by"] == "journal"
    assert explained["explain"]["tables"][0]["rows_total"] == 3


def test_a_transaction_over_two_tables_is_never_half_visible(shop: Shop) -> None:
    shop.insert({"id": 1}, table="items")
    shop.land()
    sql = "SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM items)"
    assert shop.fresh(sql, by="published") == [(3, 1)]
    shop.send(
        shop.event("INSERT", None, {"id": 4}, "orders", transactionId="t1"),
        shop.event("INSERT", None, {"id": 2}, "items", transactionId="t1"),
    )
    shop.insert({"id": 3}, table="items", transactionId="t1", transactionEnd=True)
    assert shop.fresh(sql) == [(4, 3)]
    shop.insert({"id": 5}, transactionId="t2")
    error = shop.refused(sql, consistency="fresh", timeout_s=1)
    assert error["code"] == 504, "its end has not arrived: the query waits"
    shop.insert({"id": 4}, table="items", transactionId="t2", transactionEnd=True)
    assert shop.fresh(sql) == [(5, 4)]
    assert shop.rows(sql) == [(3, 1)]


def test_a_changes_table_waits_for_the_publish(shop: Shop) -> None:
    shop.insert({"id": 4})
    sql = "SELECT count(*) FROM orders, orders__changes"
    assert shop.refused(sql, consistency="fresh", timeout_s=1)["code"] == 504


def test_a_moment_of_one_table_waits_for_the_publish(shop: Shop) -> None:
    snapshot = shop.ask(ALL)["snapshots"][f"main.{shop.namespace}.orders"]
    shop.insert({"id": 4})
    at = f"SELECT count(*) FROM orders AT (VERSION => {snapshot})"
    assert shop.refused(at, consistency="fresh", timeout_s=1)["code"] == 504
    assert shop.refused(ALL, consistency="fresh", snapshot_id=snapshot, timeout_s=1)["code"] == 504
    rows, answer = _after_publish(shop, at)
    assert rows == [(3,)]
    assert "moment of its own" in answer["fresh_reason"]


def test_a_new_column_waits_for_the_publish(shop: Shop) -> None:
    shop.insert({"id": 4, "name": "four", "new": 1})
    assert shop.refused(ALL, consistency="fresh", timeout_s=1)["code"] == 504
    rows, answer = _after_publish(shop, ALL)
    assert len(rows) == 4
    assert "new column" in answer["fresh_reason"]


def test_a_new_table_waits_for_the_publish(shop: Shop) -> None:
    shop.insert({"id": 1}, table="other")
    rows, answer = _after_publish(shop, "SELECT id FROM other")
    assert rows == [(1,)]
    assert "not published" in answer["fresh_reason"]


@pytest.fixture(params=STACKS)
def limited(request: pytest.FixtureRequest, stacks: Stacks, tmp_path: Path) -> Iterator[Shop]:
    """A server that adds at most two pending changes to a query."""
    settings = {"CALVE_QUERY_FRESH_EVENTS_MAX": "2"}
    with stacks.started(request.param, tmp_path / "own", settings) as started:
        yield Shop(started)


def test_too_many_changes_wait_for_the_publish(limited: Shop) -> None:
    limited.insert({"id": 1})
    limited.land()
    limited.insert({"id": 2}, {"id": 3})
    sql = "SELECT count(*) FROM orders"
    assert limited.fresh(sql) == [(3,)]
    limited.insert({"id": 4})
    rows, answer = _after_publish(limited, sql)
    assert rows == [(4,)]
    assert "too many" in answer["fresh_reason"]
    nested = f"SELECT id FROM {limited.namespace}.nested.other"
    assert limited.refused(nested, consistency="fresh")["code"] == 404
    limited.insert({"id": 1}, table="nested.other")
    error = limited.refused(nested, consistency="fresh", timeout_s=1)
    assert error["code"] == 504, "the table has acknowledged changes: the query waits"


def _after_publish(shop: Shop, sql: str) -> tuple[list[tuple[Any, ...]], dict[str, Any]]:
    """What a query answers that waits until the changes are landed."""
    thread, answers = in_background(lambda: shop.ask(sql, consistency="fresh", format="compact"))
    shop.land()
    thread.join(60)
    (answer,) = answers
    assert answer["fresh_by"] == "waited"
    return [tuple(row) for row in answer["rows"]], answer
