"""Recorded failovers and tables without told keys, sent again: the short forms of test_failover.py and
test_debezium_keys.py.
"""

from __future__ import annotations

import httpx
import pytest

from tests.pipeline import recordings
from tests.pipeline.conftest import Pipeline, Pipelines
from tests.pipeline.debezium_keys import require_outcomes
from tests.pipeline.producer import flush
from tests.pipeline.recorded_failovers import (
    MARIADB_FAILOVER,
    MARIADB_KEYS,
    POSTGRES_FAILOVER,
    POSTGRES_KEYS,
    SCHEMAS,
)
from tests.pipeline.recordings import RecordedRun, plain
from tests.pipeline.stock import KEYS, TABLES, in_order, lake_query
from tests.pipeline.test_debezium_replay import send


def test_a_promoted_postgresql_standby_replaces_what_it_never_had(pipeline: Pipeline) -> None:
    """With the steps of docs/debezium.md: a new epoch, and a resync of each table that the snapshot ends."""
    schema, run = prepared(pipeline, POSTGRES_FAILOVER)
    send(pipeline.url, run.requests[: run.failover_at])
    flush(pipeline.url)
    lost = set(mirror(pipeline, schema, "orders", run)) - {tuple(row) for row in run.rows["orders"]}
    assert lost, "the mirror has nothing that the new primary lacks"
    epoch = f"{pipeline.url}/lake/v1/main/sources/{schema}/epoch"
    httpx.post(epoch, json={"reason": "the standby was promoted"}).raise_for_status()
    for table in TABLES:
        path = f"/lake/v1/main/namespaces/{schema}/tables/{table}/resync"
        httpx.post(f"{pipeline.url}{path}").raise_for_status()
    send(pipeline.url, run.requests[run.failover_at :])
    # The only row of the first table is marked as the first of the snapshot, not as the last of its table.
    path = f"/lake/v1/main/namespaces/{schema}/tables/orders/resync/end"
    httpx.post(f"{pipeline.url}{path}").raise_for_status()
    require_tables(pipeline, schema, run)


def test_a_promoted_mariadb_replica_is_followed_by_its_gtids(pipeline: Pipeline) -> None:
    schema, run = prepared(pipeline, MARIADB_FAILOVER)
    send(pipeline.url, run.requests[: run.failover_at])
    flush(pipeline.url)
    send(pipeline.url, run.requests[run.failover_at :])
    require_tables(pipeline, schema, run)
    epochs = httpx.get(f"{pipeline.url}/lake/v1/main/sources/{schema}/epoch").raise_for_status().json()
    assert epochs["epoch"] == 1
    assert "another server" in epochs["epochs"][0]["reason"]


@pytest.mark.parametrize("name", [POSTGRES_KEYS, MARIADB_KEYS], ids=["postgresql", "mariadb"])
def test_keys_that_nobody_tells(name: str, pipelines: Pipelines) -> None:
    pipeline, run = pipelines.shared("embedded"), recordings.load(name)
    send(pipeline.url, run.requests)
    require_outcomes(pipeline.stack, SCHEMAS[name], run.rows)


def prepared(pipeline: Pipeline, name: str) -> tuple[str, RecordedRun]:
    schema = SCHEMAS[name]
    for table, key in KEYS.items():
        path = f"/lake/v1/main/namespaces/{schema}/tables/{table}/ingest"
        httpx.put(f"{pipeline.url}{path}", json={"key": key}).raise_for_status()
    return schema, recordings.load(name)


def mirror(pipeline: Pipeline, schema: str, table: str, run: RecordedRun) -> list[tuple[object, ...]]:
    return in_order(pipeline.rows(lake_query(schema, table, run.columns[table])))


def require_tables(pipeline: Pipeline, schema: str, run: RecordedRun) -> None:
    flush(pipeline.url, timeout_s=240)
    for table in TABLES:
        found = mirror(pipeline, schema, table, run)
        assert plain(found) == run.rows[table], f"the mirror of {table} is not the table"
