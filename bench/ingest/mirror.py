"""Freshness by the size of the mirror: 10,000, 1 M and 10 M rows, changes at random keys of all of it, with
keys that are integers and keys that are text.

Calve makes each table by its first row; Spark then fills it, in the way of a first load by another tool.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.ingest import events, freshness
from bench.ingest.freshness import Fresh
from bench.ingest.options import Options
from bench.ingest.pipeline import Pipeline, pipeline
from bench.ingest.report import met
from bench.ingest.spark_child import spark_child

GROWTH_AIM = 1.3
RATE = 500
SIZES = (10_000, 1_000_000, 10_000_000)
QUICK_SIZES = (10_000, 1_000_000)
FILL_AT_ONCE = 1_000_000
KEYS: dict[str, events.KeyOf] = {"integer": events.integer_key, "text": events.text_key}


def run(folder: Path, options: Options, say: Callable[[str], None]) -> dict[str, Any]:
    sizes = QUICK_SIZES if options.quick else SIZES
    say("mirror: starting the server and its worker")
    with pipeline(folder / "lake", options) as calve:
        _fill(calve, folder, sizes, say)
        found = {kind: _measured(calve, kind, sizes, options, say) for kind in KEYS}
    growth = {}
    for kind, cases in found.items():
        print(f"{kind} keys")
        print(freshness.shown(cases))
        growth[kind] = cases[-1].duckdb.p50_ms / cases[0].duckdb.p50_ms
        grown = f"{kind} keys: from {sizes[0]:,} to {sizes[-1]:,} rows the median grows {growth[kind]:.2f}x"
        print(f"{grown}, aim at most {GROWTH_AIM:g}x, met: {met(growth[kind] <= GROWTH_AIM)}")
        print()
    return {
        "cases": {kind: [asdict(one) for one in cases] for kind, cases in found.items()},
        "growth": growth,
    }


def _name(kind: str, size: int) -> str:
    return f"mirror_{kind}_{size}.orders"


def _fill(calve: Pipeline, folder: Path, sizes: Sequence[int], say: Callable[[str], None]) -> None:
    for kind, key_of in KEYS.items():
        calve.preload([_name(kind, size) for size in sizes], 1, key_of)
    with spark_child(calve, folder) as spark:
        for kind in KEYS:
            for size in sizes:
                say(f"mirror: filling a table with {size:,} rows, {kind} keys")
                for first in range(1, size, FILL_AT_ONCE):
                    end = min(first + FILL_AT_ONCE, size)
                    more = {"from": first, "to": end, "text": kind == "text"}
                    spark.ask("fill", table=_name(kind, size), **more)


def _measured(
    calve: Pipeline, kind: str, sizes: Sequence[int], options: Options, say: Callable[[str], None]
) -> list[Fresh]:
    pace = freshness.QUICK if options.quick else freshness.FULL
    found = []
    for size in sizes:
        say(f"mirror: {RATE} events/s on {size:,} rows, {kind} keys")
        table = _name(kind, size)
        found.append(freshness.measure(calve, [table], RATE, size, pace.warm_up_s, pace.seconds, KEYS[kind]))
    return found
