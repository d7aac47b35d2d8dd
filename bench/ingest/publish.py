"""Where the time of one publish goes: batches one after the other, on one table and on ten.

Wall times of a busy machine say little, so the lower quartile is shown beside the median, and the processor
time of each process for a batch: the server, the worker's Python, its JVM, and the Python tasks.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.ingest import events
from bench.ingest.options import Options
from bench.ingest.pipeline import Pipeline, pipeline, posted
from bench.ingest.report import figure, table, told
from bench.rivals.server import family_cpu_s

KEYS = 2_000
ROWS = 200  # of each table in a batch
WARM_UP = 5
SETTINGS = {"CALVE_MAINTENANCE": "false"}  # its steps would be measured as well


def run(folder: Path, options: Options, say: Callable[[str], None]) -> dict[str, Any]:
    batches = 15 if options.quick else 60
    found = []
    with pipeline(folder / "lake", options, SETTINGS) as calve:
        for count in (1, 10):
            names = [f"publish_{count}.orders_{number}" for number in range(count)]
            calve.preload(names, KEYS)
            say(f"publish: {batches} batches of {count} table{'s' if count > 1 else ''}")
            found.append({"tables": count, **measure(calve, names, batches)})
    print(shown(found))
    return {"cases": found}


def measure(calve: Pipeline, names: Sequence[str], batches: int) -> dict[str, Any]:
    orders = [events.Orders(name, KEYS, seed=number) for number, name in enumerate(names)]
    with calve.connection(f"publish-{len(names)}") as connection:

        def batch(number: int) -> float:
            first = number * len(orders) * ROWS
            body = events.body(
                one for place, order in enumerate(orders) for one in order.changes(first + place * ROWS, ROWS)
            )
            began = time.monotonic()
            token = posted(connection, body)
            connection.send("POST", "/flush", b"{}").expect(200)
            calve.wait_until_visible(token)
            return (time.monotonic() - began) * 1000

        for number in range(WARM_UP):
            batch(number)
        since_ms, before = time.time_ns() // 1_000_000, _processors(calve)
        taken_ms = [batch(number) for number in range(WARM_UP, WARM_UP + batches)]
        after = _processors(calve)
    stages: dict[str, list[float]] = {}
    tables: dict[str, list[float]] = {}
    for job in calve.jobs(since_ms):
        for into, given in ((stages, job.stages_ms), (tables, job.table_ms)):
            for name, value in given.items():
                into.setdefault(name, []).append(value)
    return {
        "batch_ms": _quartiles(taken_ms),
        "stages_ms": {name: _quartiles(values) for name, values in stages.items()},
        "table_ms": {name: _quartiles(values) for name, values in tables.items()},
        "processor_ms": {name: (after[name] - before[name]) / batches * 1000 for name in after},
    }


def _processors(calve: Pipeline) -> dict[str, float]:
    found = {"server": calve.server.cpu_s(), "worker": 0.0, "JVM": 0.0, "tasks": 0.0}
    for pid, (name, cpu_s) in family_cpu_s(calve.spark.pid).items():
        found["worker" if pid == calve.spark.pid else "JVM" if name == "java" else "tasks"] += cpu_s
    return found


def _quartiles(values: Sequence[float]) -> dict[str, float]:
    return {"p25": statistics.quantiles(values, n=4)[0], "p50": statistics.median(values)}


def shown(found: Sequence[Mapping[str, Any]]) -> str:
    head = ["batch of", "p25 ms", "p50 ms", "processor ms", "stages p25", "of one table p25", "processor"]
    rows = [
        [
            f"{one['tables']} tables",
            figure(one["batch_ms"]["p25"]),
            figure(one["batch_ms"]["p50"]),
            figure(sum(one["processor_ms"].values())),
            told({name: value["p25"] for name, value in one["stages_ms"].items()}),
            told({name: value["p25"] for name, value in one["table_ms"].items()}),
            told(one["processor_ms"]),
        ]
        for one in found
    ]
    return table(head, rows)
