"""Type changes that Iceberg cannot widen, from POST /cdc to rows that any engine reads."""

from __future__ import annotations

import base64
import random
import re
import uuid
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

import httpx

from tests.concurrency.seeds import seed
from tests.pipeline.conftest import Pipeline, Pipelines
from tests.pipeline.producer import Producer, flush
from tests.pipeline.test_rebuild import rebuilt

__all__ = ["seed"]  # a fixture

Make = Callable[[Pipeline, str], Producer]


def fresh() -> str:
    return f"n{uuid.uuid4().hex[:8]}"


def get(pipeline: Pipeline, path: str, **params: Any) -> dict[str, Any]:
    answer = httpx.get(f"{pipeline.url}{path}", params=params, timeout=60).raise_for_status()
    found: dict[str, Any] = answer.json()
    return found


def columns(pipeline: Pipeline, space: str, table: str) -> dict[str, Any]:
    found = get(pipeline, f"/v1/main/namespaces/{space}/tables/{table}")["metadata"]
    schema = next(s for s in found["schemas"] if s["schema-id"] == found["current-schema-id"])
    return {field["name"]: field["type"] for field in schema["fields"]}


def letters(pipeline: Pipeline, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = get(pipeline, "/lake/v1/main/dead-letters", table=table)["dead-letters"]
    return found


def test_a_whole_number_and_then_a_fraction(pipeline: Pipeline, produced: Make) -> None:
    space = fresh()
    shop = produced(pipeline, f"shop-{space}")
    table = f"{space}.prices"
    first = shop.send(
        [shop.event("INSERT", table, None, {"id": n, "price": n, "large": 2**60 + n}) for n in (1, 2)],
        wait="commit",
    )
    before = first["snapshots"][0]["number"]
    shop.send(
        [
            shop.event("UPDATE", table, {"id": 1}, {"id": 1, "price": 2.5}),
            shop.event("INSERT", table, None, {"id": 3, "price": 0.5, "large": 0.5}),
        ]
    )
    flush(pipeline.url)
    query = "SELECT id, price, large FROM lake.{} ORDER BY id"
    # A double does not hold 2**60 + 1, so that column becomes text: nothing is rounded.
    texts = [str(2**60 + 1), str(2**60 + 2), "0.5"]
    assert pipeline.rows(query.format(table)) == [(1, 2.5, texts[0]), (2, 2.0, texts[1]), (3, 0.5, texts[2])]
    history = f"SELECT id, price, large FROM lake.{table}__changes ORDER BY _position"
    assert pipeline.rows(history) == [
        (1, 1.0, texts[0]),
        (2, 2.0, texts[1]),
        (1, 2.5, texts[0]),
        (3, 0.5, texts[2]),
    ]
    assert pipeline.rows(query.format(table), f"main@{before}") == [(1, 1, 2**60 + 1), (2, 2, 2**60 + 2)]
    path = f"/lake/v1/main/namespaces/{space}/tables/prices/changes"
    changes = get(pipeline, path, **{"from": before - 1})["changes"]
    assert [change["after"]["price"] for change in changes] == [1, 2, 2.5, 0.5]
    assert columns(pipeline, space, "prices")["price"] == "double"
    assert columns(pipeline, space, "prices__changes")["price"] == "double"
    assert letters(pipeline, table) == []


class Debezium:
    """A source table whose columns have types, and that announces them with each row."""

    def __init__(self, url: str, space: str, table: str) -> None:
        self._url = url
        self._source = {"version": "3.0", "connector": "postgresql", "name": f"pg-{space}", "db": "d"}
        self._source |= {"schema": space, "table": table}
        self._lsn = 0
        self.columns: dict[str, dict[str, Any]] = {"id": {"type": "int64"}}

    def send(self, op: str, *rows: dict[str, Any]) -> None:
        events = [self._event(op, row) for row in rows]
        httpx.post(f"{self._url}/cdc?key=id", json=events, timeout=60).raise_for_status()

    def _event(self, op: str, row: dict[str, Any]) -> dict[str, Any]:
        self._lsn += 8
        fields = [{"field": name, "optional": name != "id", **type_} for name, type_ in self.columns.items()]
        images = [
            {"type": "struct", "optional": True, "field": f, "fields": fields} for f in ("before", "after")
        ]
        before, after = (row, None) if op == "d" else (None, row)
        payload = {"op": op, "before": before, "after": after, "ts_ms": self._lsn}
        payload["source"] = self._source | {"lsn": self._lsn, "txId": self._lsn, "ts_ms": self._lsn}
        return {"schema": {"type": "struct", "fields": images}, "payload": payload}


def test_old_rows_have_the_default_of_a_new_column_in_format_3(pipelines: Pipelines) -> None:
    pipeline, space = pipelines.shared("embedded"), fresh()
    table = f"{pipeline.url}/lake/v1/main/namespaces/{space}/tables/t"
    httpx.put(f"{table}/ingest", json={"format-version": 3}, timeout=60).raise_for_status()
    source = Debezium(pipeline.url, space, "t")
    source.send("c", {"id": 1}, {"id": 2})
    flush(pipeline.url)
    source.columns |= {"n": {"type": "int32", "default": 7}, "x": {"type": "string", "default": "none"}}
    source.send("c", {"id": 3, "n": 8, "x": "y"})
    source.send("u", {"id": 2, "n": None, "x": "z"})
    flush(pipeline.url)
    query = f"SELECT id, n, x FROM lake.{space}.t ORDER BY id"
    rows = [(1, 7, "none"), (2, None, "z"), (3, 8, "y")]
    assert pipeline.rows(query) == rows
    httpx.post(f"{table}/rebuild", timeout=60).raise_for_status()
    assert rebuilt(pipeline, f"{space}.t")["rebuild"]["error"] is None
    assert pipeline.rows(query) == rows


def test_declared_types_change(pipeline: Pipeline) -> None:
    """Number to text; text to number, where each value fits and where not; bytes to text, which have no
    common type; a key.
    """
    space = fresh()
    source = Debezium(pipeline.url, space, "t")
    text, whole = {"type": "string"}, {"type": "int64"}
    source.columns |= {"code": whole, "amount": text, "word": text, "data": {"type": "bytes"}}
    source.send("c", {"id": 1, "code": 7, "amount": "12", "word": "a", "data": "AAE="})
    flush(pipeline.url)
    source.columns |= {"id": text, "code": text, "amount": whole, "word": whole, "data": text}
    source.send("u", {"id": "1", "code": "x7", "amount": 13, "word": 5, "data": "plain"})
    source.send("c", {"id": "two", "code": "8", "amount": 9, "word": 6, "data": None})
    flush(pipeline.url)
    query = f"SELECT id, code, amount, word, data, data__binary FROM lake.{space}.t ORDER BY id"
    assert pipeline.rows(query) == [
        ("1", "x7", 13, "5", "plain", None),
        ("two", "8", 9, "6", None, None),
    ]
    query = (
        f"SELECT id, code, amount, word, data, data__binary FROM lake.{space}.t__changes ORDER BY _position"
    )
    assert pipeline.rows(query)[0] == ("1", "7", 12, "a", None, b"\x00\x01")
    wanted = {"id": "string", "code": "string", "amount": "long", "word": "string", "data": "string"}
    assert columns(pipeline, space, "t").items() >= wanted.items()
    assert letters(pipeline, f"{space}.t") == []


# -- random type changes

EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - timestamps without a zone
DECIMAL = {"scale": "3", "connect.decimal.precision": "12"}
TYPES: dict[str, dict[str, Any]] = {
    "int": {"type": "int32"},
    "long": {"type": "int64"},
    "double": {"type": "double"},
    "boolean": {"type": "boolean"},
    "string": {"type": "string"},
    "decimal": {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": DECIMAL},
    "date": {"type": "int32", "name": "io.debezium.time.Date"},
    "timestamp": {"type": "int64", "name": "io.debezium.time.MicroTimestamp"},
}
ROUNDS, COLUMNS, ROWS = 4, 8, 3


def any_value(kind: str, rng: random.Random) -> Any:
    """A value that a column of the source has."""
    number = rng.choice([0, 1, rng.randrange(-9999, 9999)])
    moment = EPOCH + timedelta(days=rng.randrange(20_000), seconds=rng.choice([0, 0, 61]))
    values: dict[str, Any] = {
        "int": number,
        "long": rng.choice([number, 2**60 + number]),
        "double": number / 8,
        "boolean": rng.random() < 0.5,
        "string": rng.choice([f"word {number}", str(number), f"{number}.5"]),
        "decimal": Decimal(number).scaleb(-3),
        "date": moment.date(),
        "timestamp": moment,
    }
    return None if rng.random() < 0.1 else values[kind]


def sent(value: Any) -> Any:
    """As Debezium writes it."""
    if isinstance(value, Decimal):
        return base64.b64encode(int(value.scaleb(3)).to_bytes(8, "big", signed=True)).decode()
    if isinstance(value, datetime):
        return (value - EPOCH) // timedelta(microseconds=1)
    return (value - EPOCH.date()).days if isinstance(value, date) else value


def meaning(value: Any) -> Any:
    """The same for a value and for what it becomes in another type, such as 1, 1.0, "1" and true."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, date):
        return f"{value.isoformat()}T00:00:00"
    text = {"true": "1", "false": "0"}.get(str(value).lower(), str(value))
    try:
        return Decimal(text).normalize()
    except InvalidOperation:
        return f"{text}T00:00:00" if re.fullmatch(r"\d{4}-\d\d-\d\d", text) else text


def test_random_type_changes(pipeline: Pipeline, seed: int) -> None:
    """Whatever the types of the source become, the mirror has its rows, and no row is a dead letter."""
    rng, space = random.Random(seed), fresh()
    source = Debezium(pipeline.url, space, "t")
    names = [f"c{number}" for number in range(COLUMNS)]
    kinds: dict[str, str] = {}
    rows: dict[int, dict[str, Any]] = {}
    for round_ in range(ROUNDS):
        for name in names:
            if name not in kinds or rng.random() < 0.6:
                kinds[name] = rng.choice(list(TYPES))
                source.columns[name] = TYPES[kinds[name]]
        for key in [*range(round_ * ROWS, (round_ + 1) * ROWS), *rng.sample(sorted(rows), min(1, len(rows)))]:
            row = {name: any_value(kinds[name], rng) for name in names}
            source.send("u" if key in rows else "c", {"id": key, **{name: sent(row[name]) for name in names}})
            rows[key] = row
        flush(pipeline.url)
        found = pipeline.rows(f"SELECT id, {', '.join(names)} FROM lake.{space}.t ORDER BY id")
        expected = [(key, *(meaning(rows[key][name]) for name in names)) for key in sorted(rows)]
        assert [(row[0], *map(meaning, row[1:])) for row in found] == expected, kinds
    assert letters(pipeline, f"{space}.t") == []
