"""A type change that Iceberg cannot widen: a column of whole numbers gets a fraction and becomes a double.

The worker converts the mirror and its changes table in one publish, which also lands the change.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.ingest import events, first_load
from bench.ingest.options import Options
from bench.ingest.pipeline import Pipeline, pipeline
from bench.ingest.report import figure, table
from tests.clients.duckdb_client import attach, connected

ROWS, QUICK_ROWS = 1_000_000, 50_000
TABLE = "convert.orders"
COLUMN = "marker"  # whole numbers until now


def run(folder: Path, options: Options, say: Callable[[str], None]) -> dict[str, Any]:
    rows = options.rows or (QUICK_ROWS if options.quick else ROWS)
    with pipeline(folder / "lake", options) as calve:
        say(f"convert: loading {rows:,} rows")
        first_load.load(calve, TABLE, rows)
        say("convert: converting a column")
        change = events.inserts(TABLE, rows, 1)
        change[0]["after"][COLUMN] = 0.5
        began = time.monotonic()
        with first_load.peaks(calve) as highest, calve.connection(f"load-{TABLE}") as connection:
            calve.wait_until_visible(calve.post(connection, change))
            seconds = time.monotonic() - began
        _check(calve, rows)
    head = [
        "type conversion, mirror and changes",
        "rows/s",
        "seconds",
        "driver peak MB",
        "JVM",
        "tasks",
    ]
    figures = [rows / seconds, seconds, highest["driver"], highest["JVM"], highest["tasks"]]
    print(table(head, [[f"{rows:,} rows", *map(figure, figures)]]))
    return {"rows": rows, "seconds": seconds, "rows_per_s": rows / seconds, "resident_mb_peak": highest}


def _check(calve: Pipeline, rows: int) -> None:
    duck = connected()
    attach(duck, calve.url, calve.s3)
    for name in (TABLE, f"{TABLE}__changes"):
        query = f"SELECT count(*), sum({COLUMN}), any_value(typeof({COLUMN})) FROM lake.{name}"
        assert duck.execute(query).fetchall() == [(rows + 1, 0.5, "DOUBLE")], name
    duck.close()
