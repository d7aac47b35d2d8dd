"""A first load: rows from the first POST until all are visible, with the memory of the worker meanwhile.

One producer sends inserts of one table, 5,000 in a request, as quickly as it is answered.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.ingest import events
from bench.ingest.options import Options
from bench.ingest.pipeline import Pipeline, pipeline
from bench.ingest.report import figure, median_of, table, told
from bench.rivals.server import family_resident_mb

ROWS, QUICK_ROWS = 10_000_000, 50_000
REQUEST_ROWS = 5_000
SAMPLE_EVERY_S = 0.5

Peaks = dict[str, float]  # MB, by the part of the worker


def run(folder: Path, options: Options, say: Callable[[str], None]) -> dict[str, Any]:
    rows = options.rows or (QUICK_ROWS if options.quick else ROWS)
    with pipeline(folder / "lake", options) as calve:
        calve.preload(["first_load.warm_up"], REQUEST_ROWS)
        before = resident_mb(calve)
        say(f"first-load: {rows:,} rows")
        since_ms = time.time_ns() // 1_000_000
        with peaks(calve) as highest:
            sent_s, seconds = load(calve, "first_load.orders", rows)
        jobs = calve.jobs(since_ms)
    stages = median_of([job.stages_ms for job in jobs])
    head = ["first load", "rows/s", "seconds", "sent after s", "batches"]
    head += ["driver before MB", "peak", "JVM before MB", "peak", "tasks peak MB", "a batch, medians"]
    figures = [rows / seconds, seconds, sent_s, len(jobs), before["driver"], highest["driver"]]
    figures += [before["JVM"], highest["JVM"], highest["tasks"]]
    print(table(head, [[f"{rows:,} rows", *map(figure, figures), told(stages)]]))
    return {
        "rows": rows,
        "seconds": seconds,
        "sent_s": sent_s,
        "rows_per_s": rows / seconds,
        "resident_mb_before": before,
        "resident_mb_peak": highest,
        "batches": len(jobs),
        "stages_ms": stages,
    }


def load(calve: Pipeline, name: str, rows: int) -> tuple[float, float]:
    """Insert the rows 0 to `rows`. Seconds until the last was acknowledged, and until all are visible."""
    began, token = time.monotonic(), ""
    with calve.connection(f"load-{name}") as connection:
        for first in range(0, rows, REQUEST_ROWS):
            count = min(REQUEST_ROWS, rows - first)
            token = calve.post(connection, events.inserts(name, first, count))
    sent_s = time.monotonic() - began
    calve.wait_until_visible(token)
    return sent_s, time.monotonic() - began


def resident_mb(calve: Pipeline) -> Peaks:
    """The memory of the worker's Python process, of its JVM, and of the Python processes of its tasks."""
    found = {"driver": 0.0, "JVM": 0.0, "tasks": 0.0}
    for pid, (name, mb) in family_resident_mb(calve.spark.pid).items():
        found["driver" if pid == calve.spark.pid else "JVM" if name == "java" else "tasks"] += mb
    return found


@contextlib.contextmanager
def peaks(calve: Pipeline) -> Iterator[Peaks]:
    """The highest values that were seen in the block."""
    highest = resident_mb(calve)
    over = threading.Event()

    def look() -> None:
        while not over.wait(SAMPLE_EVERY_S):
            for part, mb in resident_mb(calve).items():
                highest[part] = max(highest[part], mb)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield highest
    finally:
        over.set()
        thread.join()
