"""The rebuild of a mirror from its changes table, in rows of the changes table a second."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.ingest import first_load
from bench.ingest.options import Options
from bench.ingest.pipeline import Pipeline, pipeline
from bench.ingest.report import figure, table
from tests.clients.duckdb_client import attach, connected

ROWS, QUICK_ROWS = 10_000_000, 50_000
NAMESPACE, TABLE = "rebuild", "orders"
REBUILD_S = 3_600.0
PATH = f"/lake/v1/main/namespaces/{NAMESPACE}/tables/{TABLE}"


def run(folder: Path, options: Options, say: Callable[[str], None]) -> dict[str, Any]:
    rows = options.rows or (QUICK_ROWS if options.quick else ROWS)
    with pipeline(folder / "lake", options) as calve:
        say(f"rebuild: loading {rows:,} rows")
        first_load.load(calve, f"{NAMESPACE}.{TABLE}", rows)
        say("rebuild: rebuilding the mirror")
        with first_load.peaks(calve) as highest:
            seconds = _rebuilt_s(calve)
        _check(calve, rows)
    head = ["rebuild of a mirror", "rows/s", "seconds", "driver peak MB", "JVM", "tasks"]
    figures = [rows / seconds, seconds, highest["driver"], highest["JVM"], highest["tasks"]]
    print(table(head, [[f"{rows:,} rows", *map(figure, figures)]]))
    return {"rows": rows, "seconds": seconds, "rows_per_s": rows / seconds, "resident_mb_peak": highest}


def _rebuilt_s(calve: Pipeline) -> float:
    """From the request until the mirror is published."""
    began = time.monotonic()
    with calve.connection("rebuild") as connection:
        connection.send("POST", f"{PATH}/rebuild", b'{"reason": "a measurement"}').expect(202)
        while time.monotonic() < began + REBUILD_S:
            found = connection.send("GET", f"{PATH}/ingest").expect(200).json()["state"]["rebuild"]
            if found["state"] == "failed":
                raise RuntimeError(f"the rebuild failed: {found}")
            if found["state"] == "none" and found.get("rebuilt-why") == "a measurement":
                return time.monotonic() - began
            time.sleep(0.1)
    raise TimeoutError(f"not rebuilt after {REBUILD_S:g} s")


def _check(calve: Pipeline, rows: int) -> None:
    duck = connected()
    attach(duck, calve.url, calve.s3)
    query = f"SELECT count(*), count(DISTINCT id) FROM lake.{NAMESPACE}.{TABLE}"
    assert duck.execute(query).fetchall() == [(rows, rows)]
    duck.close()
