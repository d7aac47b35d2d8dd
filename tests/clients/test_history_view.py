"""Spark reads the view `<table>__history`, and it has the versions of a model."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType

from tests.clients.spark_client import SparkLake
from tests.harness.rest import Rest

BEGINNING = datetime(2026, 11, 1, tzinfo=UTC)
ABOUT = (
    "_operation",
    "_commit_timestamp",
    "_source_timestamp",
    "_source",
    "_position",
    "_transaction",
    "_event_id",
    "_before",
)
Change = dict[str, Any]
Version = tuple[int, str, datetime, datetime | None]


def schema_of(columns: tuple[str, ...], *, key: bool) -> Schema:
    types: dict[str, Any] = {"id": LongType(), "_commit_timestamp": TimestamptzType()}
    types["_source_timestamp"] = TimestamptzType()
    fields = [
        NestedField(number, name, types.get(name, StringType()), required=key and name == "id")
        for number, name in enumerate(columns, 1)
    ]
    return Schema(*fields, identifier_field_ids=[1] if key else [])


def random_changes(rng: random.Random, *, positions: bool, source_times: bool) -> list[Change]:
    """In order of the source. Each has a commit of its own unless positions tell them apart."""
    found: list[Change] = []
    living: set[int] = set()
    for number in range(1, 41):
        key: int | None = rng.randint(1, 4)
        operation = "insert" if key not in living else rng.choice(("update", "update", "delete"))
        if rng.random() < 0.06:
            operation, key = "truncate", None
            living.clear()
        elif operation == "delete":
            living.discard(key or 0)
        else:
            living.add(key or 0)
        commit = number // 3 if positions else number
        found.append(
            {
                "id": key,
                "value": f"v{number}" if operation in ("insert", "update") else None,
                "_operation": operation,
                "_commit_timestamp": BEGINNING + timedelta(hours=commit),
                "_source_timestamp": BEGINNING + timedelta(minutes=number) if source_times else None,
                "_source": "s",
                "_position": f"{number:016x}" if positions else None,
                "_event_id": f"{number:016x}",
            }
        )
    return found


def versions(changes: list[Change]) -> list[Version]:
    """What the model says."""
    found: list[Version] = []
    current: dict[int, tuple[str, datetime]] = {}
    for change in changes:
        now = change["_source_timestamp"] or change["_commit_timestamp"]
        ended = list(current) if change["_operation"] == "truncate" else [change["id"]]
        for key in ended:
            if key in current:
                value, since = current.pop(key)
                found.append((key, value, since, now))
        if change["value"] is not None:
            current[change["id"]] = (change["value"], now)
    return [*found, *((key, value, since, None) for key, (value, since) in current.items())]


def test_the_view_has_the_versions_of_each_row(
    spark_lake: SparkLake, rest: Rest, iceberg: RestCatalog, namespace: str
) -> None:
    cases = [(True, True), (True, False), (False, True), (False, False)]
    for number, (positions, source_times) in enumerate(cases):
        rng = random.Random(number)
        changes = random_changes(rng, positions=positions, source_times=source_times)
        name = f"t{number}"
        iceberg.create_table((namespace, name), schema_of(("id", "value"), key=True))
        table = iceberg.create_table(
            (namespace, f"{name}__changes"), schema_of(("id", "value", *ABOUT), key=False)
        )
        arrived = sorted(changes, key=lambda change: change["_commit_timestamp"])
        if positions:  # some come late: the position says where they belong
            late = rng.sample([change for change in arrived if change["_operation"] != "truncate"], 3)
            for change in late:
                change["_commit_timestamp"] += timedelta(days=9)
        rng.shuffle(arrived)
        table.append(pa.Table.from_pylist(arrived, schema=table.schema().as_arrow()))
        path = f"main/namespaces/{namespace}/tables/{name}/ingest"
        answer = rest.lake("PUT", path, json={"history-view": True})
        assert answer.status_code == 200, answer.text
        here = f"{spark_lake.catalog()}.{namespace}.{name}__history"
        times = "unix_micros(_valid_from), unix_micros(_valid_to)"
        shown = spark_lake.sql(f"SELECT id, value, {times} FROM {here}")
        expected: list[tuple[Any, ...]] = [
            (key, value, micros(since), micros(until)) for key, value, since, until in versions(changes)
        ]
        if positions and not source_times:  # a late change has a late commit
            shown, expected = [row[:2] for row in shown], [row[:2] for row in expected]
        assert sorted(shown, key=str) == sorted(expected, key=str), (positions, source_times)


def micros(time: datetime | None) -> int | None:
    return None if time is None else round(time.timestamp() * 1_000_000)
