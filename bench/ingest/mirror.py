"""Freshness by the size of the mirror: 10,000, 1 M and 10 M rows, changes at random keys of all of it.

Calve makes each table by its first row; Spark then fills it, in the way of a first load by another tool.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.ingest import freshness
from bench.ingest.freshness import Fresh
from bench.ingest.pipeline import pipeline
from bench.ingest.report import met
from bench.ingest.spark_child import spark_child

GROWTH_AIM = 1.5
RATE = 500
SIZES = (10_000, 1_000_000, 10_000_000)
QUICK_SIZES = (10_000, 1_000_000)
FILL_AT_ONCE = 1_000_000


def run(folder: Path, *, quick: bool, workers: int, say: Callable[[str], None]) -> dict[str, Any]:
    pace = freshness.QUICK if quick else freshness.FULL
    sizes = QUICK_SIZES if quick else SIZES
    names = {size: f"mirror_{size}.orders" for size in sizes}
    found: list[Fresh] = []
    say("mirror: starting the server and its worker")
    with pipeline(folder / "lake", workers=workers) as calve:
        calve.preload(list(names.values()), 1)
        with spark_child(calve.url, folder) as spark:
            for size, name in names.items():
                say(f"mirror: filling a table with {size:,} rows")
                for first in range(1, size, FILL_AT_ONCE):
                    spark.ask("fill", table=name, **{"from": first, "to": min(first + FILL_AT_ONCE, size)})
        for size, name in names.items():
            say(f"mirror: {RATE} events/s on {size:,} rows")
            found.append(freshness.measure(calve, [name], RATE, size, pace.warm_up_s, pace.seconds))
    print(freshness.shown(found))
    growth = found[-1].duckdb.p50_ms / found[0].duckdb.p50_ms
    grown = f"from {sizes[0]:,} to {sizes[-1]:,} rows the median grows {growth:.2f}x"
    print(f"{grown}, aim at most {GROWTH_AIM:g}x, met: {met(growth <= GROWTH_AIM)}")
    return {"cases": [asdict(one) for one in found], "growth": growth}
