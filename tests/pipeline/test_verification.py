"""Verification of mirrors by the worker: a right mirror is equal, and every seeded mistake is named."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pyarrow as pa
import pytest

from tests.clients.page_runner import Reader, blocks
from tests.clients.pyiceberg_client import catalog
from tests.harness.components import ROOT
from tests.harness.postgres import PostgresServer
from tests.pipeline.conftest import Pipeline
from tests.pipeline.producer import Event, Producer, flush

pytestmark = pytest.mark.timeout(600)
Produced = Callable[[Pipeline, str], Producer]


def test_seeded_mistakes_are_named_by_key_and_column(pipeline: Pipeline, produced: Produced) -> None:
    shop = produced(pipeline, "verified-shop")
    events = history(shop, "verified.orders", random.Random(7))
    for half in (events[:60], events[60:]):
        shop.send(half)
        flush(pipeline.url)
    found = verified(pipeline, "orders")
    assert (found["state"], found["differences"]) == ("equal", {})
    assert found["verified-through"]["number"] == found["checked"]["number"]
    through = found["verified-through"]
    assert through["positions"]["verified-shop"] == watermark(pipeline, "verified.orders", "verified-shop")
    assert found["checked"]["rows"] == found["checked"]["expected-rows"] > 10
    assert "mend" not in found
    rows = found["checked"]["rows"]
    assert found["kept-checksums"]["compared"] == {"rows": rows, "buckets-differing": []}
    assert (found["kept-checksums"]["state"], found["kept-checksums"]["rows"]) == ("kept", rows)

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
    assert found["kept-checksums"]["compared"]["rows"] == rows
    assert found["kept-checksums"]["compared"]["buckets-differing"]  # not a batch changed the mirror
    path = "/lake/v1/main/namespaces/verified/tables/orders"
    assert found["mend"]["request"] == f"POST {path}/rebuild"
    shown = httpx.get(f"{pipeline.url}/status").json()["landing"]["tables"]["verified.orders"]
    assert shown["verification"]["state"] == "differs"
    assert shown["verification"]["verified-through"] == through
    metrics = httpx.get(f"{pipeline.url}/metrics").text
    assert 'calve_verifications_total{result="differs"}' in metrics


def history(shop: Producer, table: str, rng: random.Random) -> list[Event]:
    """Inserts, updates, deletes and key changes of rows with many types; rows 100 and 101 stay."""
    events, living = [], dict[int, Event]()
    for _ in range(120):
        key, other = rng.randint(1, 30), rng.randint(31, 60)
        if key in living and other not in living and rng.random() < 0.2:
            before, living[other] = living.pop(key), row(rng, other)
            events.append(shop.event("UPDATE", table, before, living[other]))
            continue
        if key in living and rng.random() < 0.3:
            events.append(shop.event("DELETE", table, living.pop(key), None))
            continue
        kind = "UPDATE" if key in living else "INSERT"
        former, living[key] = living.get(key), row(rng, key)
        events.append(shop.event(kind, table, former, living[key]))
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


def test_a_live_source_is_compared_row_by_row(
    pipeline: Pipeline, produced: Produced, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A PostgreSQL table, its changes sent by a producer, and differences on either side."""
    address = postgres.database().replace("+psycopg", "")
    shop = produced(pipeline, "compared-shop")
    name = "compared.items"
    with psycopg.connect(address, autocommit=True) as source:
        source.execute(
            "CREATE TABLE items (id bigint PRIMARY KEY, name text, price double precision, sold boolean, "
            "only_here interval)"
        )
        rows = [(number, f"item {number}", number / 3, number % 2 == 0) for number in range(1, 301)]
        for row in rows:
            source.execute("INSERT INTO items VALUES (%s, %s, %s, %s)", row)
        names = ("id", "name", "price", "sold")
        inserted = [dict(zip(names, row, strict=True)) for row in rows]
        shop.send(shop.event("INSERT", name, None, row) for row in inserted)
        flush(pipeline.url)
        code, found = compared(pipeline, address, name)
        assert (code, found["state"], found["rows"]) == (0, "equal", 300), found
        assert found["columns"] == ["id", "name", "price", "sold"]
        assert list(found["not-compared"]) == ["only_here"]
        follow_the_page(pipeline, address, monkeypatch)

        source.execute("DELETE FROM items WHERE id = 7")
        source.execute("UPDATE items SET name = 'other', sold = NOT sold WHERE id = 8")
        source.execute("INSERT INTO items VALUES (1000, 'new', 1, true)")
        code, found = compared(pipeline, address, name)
        assert (code, found["state"], found["differences"]) == (1, "differs", 3), found
        assert sorted((one["kind"], one["key"]["id"], one["columns"]) for one in found["keys"]) == [
            ("changed", "8", ["name", "sold"]),
            ("missing", "1000", []),
            ("unexpected", "7", []),
        ]

        before, after = inserted[7], {**inserted[7], "name": "other", "sold": False}
        shop.send([
            shop.event("DELETE", name, inserted[6], None),
            shop.event("UPDATE", name, before, after),
            shop.event("INSERT", name, None, {"id": 1000, "name": "new", "price": 1.0, "sold": True}),
        ])  # fmt: skip
        code, found = compared(pipeline, address, name)  # waits until what was acknowledged has landed
        assert (code, found["state"]) == (0, "equal"), found
        posted(pipeline, source, shop)


def follow_the_page(pipeline: Pipeline, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run docs/verification.md with the table of this test."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CALVE_URI", pipeline.url)
    monkeypatch.setenv("SOURCE", address)
    reader = Reader(pipeline.stack)
    for block in blocks(ROOT / "docs" / "verification.md"):
        text = block.text.replace("shop", "compared").replace("orders", "items")
        reader.run(replace(block, text=text))
    assert reader.done == 4


def compared(pipeline: Pipeline, address: str, table: str) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON of the command."""
    done = run(pipeline, "--source", address, "--source-table", "items", "--wait", "3", table)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def run(pipeline: Pipeline, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "calve", "verify", "--uri", pipeline.url, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def posted(pipeline: Pipeline, source: psycopg.Connection[Any], shop: Producer) -> None:
    """What the printed SQL computes, posted as checksums of the source at a position."""
    printed = run(pipeline, "--sql", "postgresql", "--source-table", "items", "compared.items").stdout
    sums = source.execute(printed.encode()).fetchall()
    buckets = {bucket: [count, hash_] for bucket, count, hash_ in sums}
    body = {
        "source": "compared-shop",
        "position": watermark(pipeline, "compared.items", "compared-shop"),
        "columns": ["id", "name", "price", "sold"],
        "count": sum(row[1] for row in sums),
        "buckets": buckets,
    }
    # A change behind the position makes no difference.
    shop.send([shop.event("DELETE", "compared.items", {"id": 1}, None)])
    flush(pipeline.url)
    assert outcome(pipeline, body)["state"] == "equal"
    some = next(iter(buckets))
    wrong = {**body, "buckets": {**buckets, some: [buckets[some][0], "1"]}}
    found = outcome(pipeline, wrong)
    assert (found["state"], found["buckets-differing"]) == ("differs", [some])


def outcome(pipeline: Pipeline, body: dict[str, Any]) -> dict[str, Any]:
    path = f"{pipeline.url}/lake/v1/main/namespaces/compared/tables/items/verification"
    answer = httpx.post(path, json=body)
    assert answer.status_code == 202, answer.text
    found: dict[str, Any] = answer.json()["source"]
    until_s = time.monotonic() + 120
    while found["state"] == "waiting" and time.monotonic() < until_s:
        time.sleep(0.2)
        found = httpx.get(path).raise_for_status().json()["source"]
    return found
