"""The mirrors of tables whose events name no key: right by evidence, or in doubt with a reason."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import httpx

from tests.clients.duckdb_client import DuckLake
from tests.harness.stacks import Stack
from tests.pipeline.key_tables import COMPARED, TABLES, verdicts
from tests.pipeline.producer import flush
from tests.pipeline.recordings import plain

REBUILT_S = 240


def require_outcomes(stack: Stack, schema: str, wanted: Mapping[str, Any]) -> dict[str, str]:
    """Fails if a mirror is wrong and nothing says so. Returns what became of each table."""
    flush(stack.url)
    _wait_for_rebuilds(stack.url, schema)
    flush(stack.url)
    status = httpx.get(f"{stack.url}/status", timeout=30).raise_for_status().json()["landing"]["tables"]
    found = {table: _mirror(stack, schema, table) for table in TABLES}
    outcomes = verdicts(status, schema, found, plain_rows(wanted))
    assert outcomes["done"] == "right"
    assert "no key is known" in outcomes["badges"]
    return outcomes


def wait_for_end(stack: Stack, schema: str) -> None:
    """Wait until the table `done` has a row: Debezium sends in order."""
    until_s = time.monotonic() + REBUILT_S
    while not _mirror(stack, schema, "done"):
        assert time.monotonic() < until_s, "the last row has not arrived"
        time.sleep(0.3)


def plain_rows(rows: Mapping[str, Any]) -> dict[str, Any]:
    return {table: plain(found) for table, found in rows.items()}


def _mirror(stack: Stack, schema: str, table: str) -> Any:
    path = f"{stack.url}/v1/main/namespaces/{schema}/tables/{table}"
    if httpx.head(path, timeout=30).status_code == 404:
        return None
    with DuckLake(stack) as lake:
        rows = lake.sql(f"SELECT {', '.join(COMPARED[table])} FROM lake.{schema}.{table}")
    return plain(sorted(map(tuple, rows), key=repr))


def _wait_for_rebuilds(url: str, schema: str) -> None:
    until_s = time.monotonic() + REBUILT_S
    for table in TABLES:
        path = f"{url}/lake/v1/main/namespaces/{schema}/tables/{table}/ingest"
        while True:
            rebuild = httpx.get(path, timeout=30).raise_for_status().json()["state"]["rebuild"]
            if rebuild["state"] in ("none", "failed"):
                break
            assert time.monotonic() < until_s, f"{table} is not rebuilt: {rebuild}"
            time.sleep(0.2)
