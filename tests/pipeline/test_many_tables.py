"""One source of many tables: each of them lands, whole, and none waits for all the others."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.clients.duckdb_client import DuckLake
from tests.harness.rest import Rest
from tests.harness.stacks import Stacks
from tests.pipeline.conftest import Pipeline
from tests.pipeline.own import own_pipeline
from tests.pipeline.producer import Producer, flush, in_batches

TURNS = 2
EVENTS_AT_ONCE = 1_000


def test_thirty_tables(pipeline: Pipeline) -> None:
    _land(pipeline, 30)


@pytest.mark.proof
def test_a_thousand_tables(stacks: Stacks, tmp_path: Path) -> None:
    with own_pipeline(stacks, "embedded", tmp_path) as pipeline:
        _land(pipeline, 1_000)


def _land(pipeline: Pipeline, tables: int) -> None:
    space = f"n{uuid.uuid4().hex[:8]}"
    producer = Producer(pipeline.url, f"many-{space}")
    began_s = time.monotonic()
    for turn in range(TURNS):
        events = [
            event for number in range(tables) for event in _events(producer, f"{space}.t{number}", turn)
        ]
        for part in in_batches(events, EVENTS_AT_ONCE):
            producer.send(part)
        flush(pipeline.url, timeout_s=3_600)
        print(f"turn {turn + 1}: {tables} tables after {time.monotonic() - began_s:.0f} s")
    producer.client.close()
    _check(pipeline, space, tables)


def _events(producer: Producer, table: str, turn: int) -> list[dict[str, Any]]:
    if turn == 0:
        rows = [{"id": id_, "name": f"{table} {id_}", "turn": 0} for id_ in range(3)]
        return [producer.event("INSERT", table, None, row) for row in rows]
    return [
        producer.event("UPDATE", table, {"id": 0}, {"id": 0, "name": f"{table} anew", "turn": turn}),
        producer.event("DELETE", table, {"id": 1}, None),
        producer.event("INSERT", table, None, {"id": 10 + turn, "name": "new", "turn": turn}),
    ]


def _check(pipeline: Pipeline, space: str, tables: int) -> None:
    found = set(Rest(pipeline.url).tables(space))
    assert found == {f"t{number}{suffix}" for number in range(tables) for suffix in ("", "__changes")}
    with DuckLake(pipeline.stack) as lake:
        for number in range(tables):
            table = f"{space}.t{number}"
            rows = lake.sql(f"SELECT id, name, turn FROM lake.{table} ORDER BY id")
            assert rows == [(0, f"{table} anew", 1), (2, f"{table} 2", 0), (11, "new", 1)], table
            [kept] = lake.sql(f"SELECT count(*), max(_position) FROM lake.{table}__changes")
            assert kept[0] == 6, table
