"""Verification of mirrors by the worker: a right mirror is equal, and every seeded mistake is named."""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Callable
from typing import Any

import httpx
import pyarrow as pa

from tests.clients.pyiceberg_client import catalog
from tests.pipeline.conftest import Pipeline
from tests.pipeline.producer import Event, Producer, flush

Produced = Callable[[Pipeline, str], Producer]


def test_seeded_mistakes_are_named_by_key_and_column(pipeline: Pipeline, produced: Produced) -> None:
    shop = produced(pipeline, "verified-shop")
    shop.send(history(shop, "verified.orders", random.Random(7)))
    flush(pipeline.url)
    found = verified(pipeline, "orders")
    assert (found["state"], found["differences"]) == ("equal", {})
    assert found["verified-through"]["number"] == found["checked"]["number"]
    through = found["verified-through"]
    assert through["positions"]["verified-shop"] == watermark(pipeline, "verified.orders", "verified-shop")
    assert found["checked"]["rows"] == found["checked"]["expected-rows"] > 10
    assert "mend" not in found

    corrupt(pipeline)
    found = verified(pipeline, "orders")
    assert found["state"] == "differs"
    assert found["differences"] == {"missing": 1, "unexpected": 1, "changed": 1}
    assert sorted((one["kind"], one["key"]["id"], tuple(one["columns"])) for one in found["keys"]) == [
        ("changed", 101, ("name",)),
        ("missing", 100, ()),
        ("unexpected", 999, ()),
    ]
    assert found["verified-through"] == through  # what was right before stays known
    path = "/lake/v1/main/namespaces/verified/tables/orders"
    assert found["mend"]["request"] == f"POST {path}/rebuild"
    shown = httpx.get(f"{pipeline.url}/status").json()["landing"]["tables"]["verified.orders"]
    assert shown["verification"]["state"] == "differs"
    assert shown["verification"]["verified-through"] == through
    metrics = httpx.get(f"{pipeline.url}/metrics").text
    assert 'calve_verifications_total{result="differs"}' in metrics


def history(shop: Producer, table: str, rng: random.Random) -> list[Event]:
    """Inserts, updates and deletes of rows with many types, and rows 100 and 101 that stay."""
    events, living = [], dict[int, Event]()
    for _ in range(120):
        key = rng.randint(1, 30)
        if key in living and rng.random() < 0.3:
            events.append(shop.event("DELETE", table, living.pop(key), None))
            continue
        kind = "UPDATE" if key in living else "INSERT"
        before, living[key] = living.get(key), row(rng, key)
        events.append(shop.event(kind, table, before, living[key]))
    return [*events, *(shop.event("INSERT", table, None, row(rng, key)) for key in (100, 101))]


def row(rng: random.Random, key: int) -> Event:
    return {
        "id": key,
        "name": rng.choice(["plain", "", "ünï😀", "a:b-c", "7"]),
        "count": rng.choice([None, 0, -1, 2**53]),
        "price": rng.choice([None, 0.1, -2.5e-7, 1e22]),
        "open": rng.choice([None, True, False]),
        "tags": rng.choice([None, [], ["x", "y"]]),
    }


def corrupt(pipeline: Pipeline) -> None:
    """By another engine: a row removed, one changed, one added."""
    table = catalog(pipeline.stack).load_table("verified.orders")
    rows = table.scan(row_filter="id = 101").to_arrow()
    changed, added = with_value(rows, "name", "other"), with_value(rows, "id", 999)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # PyIceberg rewrites files instead of marking rows
        table.delete("id = 100")
        table.overwrite(changed, "id = 101")
    table.append(added)


def with_value(rows: pa.Table, column: str, value: Any) -> pa.Table:
    field = rows.schema.field(column)
    return rows.set_column(rows.schema.get_field_index(column), field, pa.array([value], field.type))


def verified(pipeline: Pipeline, name: str, namespace: str = "verified") -> dict[str, Any]:
    """The outcome of a verification that begins now."""
    path = f"{pipeline.url}/lake/v1/main/namespaces/{namespace}/tables/{name}"
    answer = httpx.post(f"{path}/verify")
    assert answer.status_code == 202, answer.text
    found: dict[str, Any] = answer.json()
    until_s = time.monotonic() + 120
    while time.monotonic() < until_s:
        found = httpx.get(f"{path}/verification").raise_for_status().json()
        if found["state"] not in ("requested", "running"):
            return found
        time.sleep(0.2)
    raise AssertionError(f"not verified in time: {found}")


def watermark(pipeline: Pipeline, table: str, source: str) -> str:
    landing = httpx.get(f"{pipeline.url}/status").json()["landing"]
    position: str = landing["tables"][table]["watermarks"][source]["position"]
    return position
