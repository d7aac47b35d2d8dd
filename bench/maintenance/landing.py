"""Compaction beside landing: how much later changes become visible because tables are maintained.

One producer sends to one table, so that about one batch a second lands. The same is measured with maintenance
and without it, in turns, on servers of their own. Then the ratio of the two is shown. A batch in the way of
a compaction would be seen as a second attempt of its job: they are counted.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.ingest import freshness
from bench.ingest.options import Options
from bench.ingest.pipeline import Pipeline, pipeline

TABLES = ("landing.orders",)
KEYS = 10_000
RATE = 500  # events in a second
SETTINGS = {
    # As a busy day would: compactions are due every few batches, and moments end all the time.
    True: {"CALVE_KEPT_MOMENTS": "all:10s, 5s:60s", "CALVE_MAINTENANCE_INTERVAL_S": "1"},
    False: {"CALVE_MAINTENANCE": "false"},
}
SMALL_FILES_MIN = 4


@dataclass(frozen=True, slots=True)
class Turn:
    p50_ms: float
    p95_ms: float
    batches: int
    batches_per_s: float
    retried_batches: int
    failed_batches: int
    steps: int  # of compaction
    rewritten_bytes: int
    longest_step_ms: int


def run(folder: Path, seconds: float, turns: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Each turn measures both, the one without maintenance first."""
    found: dict[bool, list[Turn]] = {False: [], True: []}
    for number in range(turns):
        for is_on, given in found.items():
            with pipeline(folder / f"{number}-{is_on}", Options(), SETTINGS[is_on]) as calve:
                given.append(_turn(calve, seconds, is_on=is_on))
            say(f"turn {number + 1}, {'with' if is_on else 'without'} maintenance: {given[-1]}")
    without, with_ = found[False], found[True]
    return {
        "without": _told(without),
        "with": _told(with_),
        "ratio": {
            name: round(_median(with_, name) / _median(without, name), 2) for name in ("p50_ms", "p95_ms")
        },
        "retried or failed batches": sum(one.retried_batches + one.failed_batches for one in with_),
    }


def _turn(calve: Pipeline, seconds: float, *, is_on: bool) -> Turn:
    if is_on:
        with calve.connection("policy") as connection:
            body = b'{"small-files-min": %d}' % SMALL_FILES_MIN
            connection.send("PUT", "/lake/v1/main/maintenance", body).expect(200)
    calve.preload(TABLES, KEYS)
    since_ms = time.time_ns() // 1_000_000
    fresh = freshness.measure(calve, TABLES, RATE, KEYS, min(15.0, seconds), seconds)
    with calve.connection("watch") as connection:
        listed = connection.send("GET", "/lake/v1/main/jobs?limit=1000").expect(200).json()["jobs"]
    recent = [job for job in listed if job["created-ms"] >= since_ms]
    batches = [job for job in recent if "tables" in job["progress"]]
    steps = [job["progress"] for job in recent if "rewritten-bytes" in job["progress"]]
    return Turn(
        p50_ms=fresh.duckdb.p50_ms,
        p95_ms=fresh.duckdb.p95_ms,
        batches=len(batches),
        batches_per_s=round(fresh.jobs / seconds, 2),
        retried_batches=sum(job["attempts"] > 1 or job["progress"]["tries"] > 1 for job in batches),
        failed_batches=sum(
            job["error"] is not None for job in recent if "rewritten-bytes" not in job["progress"]
        ),
        steps=len(steps),
        rewritten_bytes=sum(step["rewritten-bytes"] for step in steps),
        longest_step_ms=max((step["ms"] for step in steps), default=0),
    )


def _median(turns: list[Turn], name: str) -> float:
    return float(statistics.median(getattr(turn, name) for turn in turns))


def _told(turns: list[Turn]) -> dict[str, float]:
    return {name: round(_median(turns, name), 1) for name in Turn.__slots__}
