"""Changes from the first POST until all of them are visible, beside a hand-written Structured Streaming job.

Both get the same changes (70 % updates, 20 % inserts, 10 % deletes at random keys) onto a table of the same
rows, through one catalog on one machine, and both keep a mirror and a history. Calve gets them by HTTP,
1,000 in a request; the job finds them as NDJSON files of 1,000 in a folder, each synced to the disk. They
take turns; what each has in its mirror at the end is compared with a model of it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.ingest import costs, events, inbox
from bench.ingest.options import Options
from bench.ingest.pipeline import Pipeline, pipeline, posted
from bench.ingest.report import figure, median_of, met, table, told
from bench.ingest.spark_child import SparkChild, spark_child
from tests.clients.duckdb_client import attach, connected

RATIO_AIM = 3.0
BATCH = 1_000
SEED = 11


@dataclass(frozen=True, slots=True)
class Pace:
    rounds: int
    changes: int
    keys: int


FULL = Pace(rounds=3, changes=200_000, keys=100_000)
QUICK = Pace(rounds=1, changes=10_000, keys=5_000)


@dataclass(frozen=True, slots=True)
class Sample:
    who: str
    changes: int
    seconds: float
    sent_s: float  # until the last change was acknowledged, or its file synced
    batches: int
    stages_ms: dict[str, float]  # medians of the batches
    table_ms: dict[str, float]
    cpu_s: float
    table: str

    @property
    def rate(self) -> float:
        return self.changes / self.seconds


def run(folder: Path, options: Options, say: Callable[[str], None]) -> dict[str, Any]:
    pace = QUICK if options.quick else FULL
    samples: list[Sample] = []
    say("end-to-end: starting the server, its worker and the other Spark")
    with pipeline(folder / "lake", options) as calve, spark_child(calve, folder) as rival:
        say("end-to-end: warming up")
        _warm_up(calve)
        rival.ask("warm-up", folder=str(folder / "warm-up"))
        for number in range(pace.rounds):
            say(f"end-to-end: round {number + 1} of {pace.rounds}")
            for who in ("calve", "streaming") if number % 2 == 0 else ("streaming", "calve"):
                ours = who == "calve"
                samples.append(
                    _calve(calve, pace, number) if ours else _rival(calve, rival, folder, pace, number)
                )
        _check(calve, samples, pace)
    where = costs.of_landing(2_000 if options.quick else 50_000, folder)
    _print(samples, where)
    return {"samples": [asdict(one) for one in samples], "staging_cpu_us_per_event": where}


def _warm_up(calve: Pipeline) -> None:
    name, keys = "warm_up.orders", 1_000
    calve.preload([name], keys)
    orders = events.Orders(name, keys, seed=3)
    with calve.connection("warm-up") as connection:
        for turn in range(4):
            token = calve.post(connection, orders.changes(turn * 2_000, 2_000))
            calve.wait_until_visible(token)


def _calve(calve: Pipeline, pace: Pace, number: int) -> Sample:
    name = f"calve_{number}.orders"
    calve.preload([name], pace.keys)
    changes = list(events.Orders(name, pace.keys, SEED).changes(1, pace.changes))
    bodies = [events.body(part) for part in events.in_batches(changes, BATCH)]
    since_ms, cpu_s = time.time_ns() // 1_000_000, calve.server.cpu_s() + calve.spark.cpu_s()
    with calve.connection(f"orders-{number}") as connection:
        began, token = time.perf_counter(), ""
        for body in bodies:
            token = posted(connection, body)
        sent = time.perf_counter()
        calve.wait_until_visible(token)
        done = time.perf_counter()
    cpu_s = calve.server.cpu_s() + calve.spark.cpu_s() - cpu_s
    jobs = calve.jobs(since_ms)
    stages = median_of([job.stages_ms for job in jobs])
    tables = median_of([job.table_ms for job in jobs])
    return Sample("calve", pace.changes, done - began, sent - began, len(jobs), stages, tables, cpu_s, name)


def _rival(calve: Pipeline, rival: SparkChild, folder: Path, pace: Pace, number: int) -> Sample:
    name = f"rival_{number}.orders"
    rival.ask("create", table=name, keys=pace.keys)
    changes = list(events.Orders(name, pace.keys, SEED).changes(1, pace.changes))
    files = [inbox.content(part) for part in events.in_batches(changes, BATCH)]
    place = folder / f"inbox-{number}"
    place.mkdir()
    cpu_s = calve.server.cpu_s() + rival.server.cpu_s()
    rival.ask("start", table=name, folder=str(place), events=pace.changes)
    began = time.perf_counter()
    for count, data in enumerate(files):
        inbox.put(place, count, data)
    sent = time.perf_counter()
    triggers = rival.ask("finish")
    done = time.perf_counter()
    rival.ask("stop")
    cpu_s = calve.server.cpu_s() + rival.server.cpu_s() - cpu_s
    stages = median_of([{key: one[key] * 1000 for key in ("append", "merge")} for one in triggers])
    return Sample(
        "streaming", pace.changes, done - began, sent - began, len(triggers), stages, {}, cpu_s, name
    )


def _check(calve: Pipeline, samples: list[Sample], pace: Pace) -> None:
    """Both mirrors are what they must be, and both histories whole."""
    model = events.Orders("", pace.keys, SEED)
    for _ in model.changes(1, pace.changes):
        pass
    duck = connected()
    attach(duck, calve.url, calve.s3)
    for sample in samples:
        found = duck.execute(f"SELECT count(*), sum(id), sum(marker) FROM lake.{sample.table}").fetchall()[0]
        assert events.Digest(*map(int, found)) == model.digest(), (sample.table, found, model.digest())
        [[kept]] = duck.execute(
            f"SELECT count(*) FROM lake.{sample.table}__changes WHERE _operation IS NOT NULL"
        ).fetchall()
        wanted = pace.changes + (pace.keys if sample.who == "calve" else 0)
        assert kept == wanted, (sample.table, kept, wanted)
    duck.close()


def _print(samples: list[Sample], where: dict[str, float]) -> None:
    head = ["end to end", "changes", "changes/s", "seconds", "sent after s", "batches", "cpu s"]
    rows, rates = [], {}
    for who, title in (("streaming", "Structured Streaming, foreachBatch MERGE"), ("calve", "Calve")):
        mine = [sample for sample in samples if sample.who == who]
        rates[who] = statistics.median(sample.rate for sample in mine)
        names = ("rate", "seconds", "sent_s", "batches", "cpu_s")
        figures = [statistics.median(getattr(sample, name) for sample in mine) for name in names]
        stages = median_of([sample.stages_ms for sample in mine])
        tables = median_of([sample.table_ms for sample in mine])
        goes = told(stages) + (f" (of one table: {told(tables)})" if tables else "")
        rows.append([title, f"{mine[0].changes:,}", *map(figure, figures), goes])
    print(table([*head, "a batch, medians"], rows))
    ratio = rates["calve"] / rates["streaming"]
    print(f"ratio {ratio:.2f}x, aim {RATIO_AIM:g}x, met: {met(ratio >= RATIO_AIM)}")
    print()
    print(costs.shown("staging", where))
