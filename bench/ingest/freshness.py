"""From POST until another engine sees it: a producer at a constant rate, on one table and on ten.

Two look: one asks the server whether the request's token has landed, the other is DuckDB, which reads the
newest marker of all mirrors through the catalog, in one query. A request on ten tables counts as visible when
all ten are. A hand-written Structured Streaming job then gets the same rate on one table (`rival_freshness`).
"""

from __future__ import annotations

import multiprocessing
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.ingest import events, processes, reader, rival_freshness, steady
from bench.ingest.options import Options
from bench.ingest.pipeline import Pipeline, pipeline
from bench.ingest.report import Percentiles, figure, median_of, met, table, told
from bench.ingest.spark_child import spark_child

AIMS_MS = {1: {"p50_ms": 1_200.0, "p95_ms": 2_000.0}, 10: {"p50_ms": 2_000.0, "p95_ms": 3_000.0}}


@dataclass(frozen=True, slots=True)
class Pace:
    warm_up_s: float
    seconds: float
    keys: int
    rates: tuple[int, ...] = (500, 5_000)
    tables: tuple[int, ...] = (1, 10)


FULL = Pace(warm_up_s=20, seconds=60, keys=10_000)
QUICK = Pace(warm_up_s=4, seconds=6, keys=1_000)


@dataclass(frozen=True, slots=True)
class Fresh:
    """One rate on some tables."""

    tables: int
    rate: int
    keys: int
    achieved: float  # events in a second that were really sent
    ack: Percentiles
    landed: Percentiles
    duckdb: Percentiles
    unseen: int  # requests that DuckDB never saw
    looks_per_s: float
    jobs: int
    job_ms: float  # from the cut to its visibility, median
    stages_ms: dict[str, float]
    table_ms: dict[str, float]
    cpu_cores: dict[str, float]  # processors that the server and Spark kept busy

    @property
    def waits_ms(self) -> float:
        """What a change waits before its batch is cut, at the median."""
        return max(0.0, self.landed.p50_ms - self.job_ms)


def run(folder: Path, options: Options, say: Callable[[str], None]) -> dict[str, Any]:
    pace = QUICK if options.quick else FULL
    found = []
    say("freshness: starting the server and its worker")
    with pipeline(folder / "lake", options) as calve:
        for count in pace.tables:
            for rate in pace.rates:
                names = [f"fresh_{count}_{rate}.orders_{number}" for number in range(count)]
                calve.preload(names, pace.keys)
                say(f"freshness: {rate:,} events/s on {count} table{'s' if count > 1 else ''}")
                found.append(measure(calve, names, rate, pace.keys, pace.warm_up_s, pace.seconds))
        print(shown(found), end="\n\n", flush=True)
        with spark_child(calve, folder) as spark:
            say("freshness: warming up the Structured Streaming job")
            spark.ask("warm-up", folder=str(folder / "warm-up"))
            rivals = []
            for rate in pace.rates:
                say(f"freshness: the Structured Streaming job at {rate:,} events/s on 1 table")
                place = folder / f"inbox-{rate}"
                rivals.append(
                    rival_freshness.measure(
                        calve, spark, place, rate, pace.keys, pace.warm_up_s, pace.seconds
                    )
                )
    print(rival_freshness.shown(rivals, {one.rate: one.duckdb for one in found if one.tables == 1}))
    return {
        "cases": [asdict(one) | {"waits_ms": one.waits_ms} for one in found],
        "streaming": [asdict(one) for one in rivals],
    }


def measure(
    calve: Pipeline,
    tables: Sequence[str],
    rate: int,
    keys: int,
    warm_up_s: float,
    seconds: float,
    key_of: events.KeyOf = events.integer_key,
) -> Fresh:
    """The tables are there, with `keys` rows each."""
    context = multiprocessing.get_context("spawn")
    source = f"steady-{uuid.uuid4().hex[:8]}"
    spec = steady.Spec(calve.port, tuple(tables), rate, keys, warm_up_s, seconds, source, key_of)
    mine, theirs = context.Pipe()
    sending = context.Process(target=steady.produce, args=(spec, theirs), daemon=True)
    with reader.looking(calve.url, calve.s3, tables) as stopped, processes.ended(sending):
        since_ms = time.time_ns() // 1_000_000 + int(warm_up_s * 1000)
        began, cpu = time.monotonic(), (calve.server.cpu_s(), calve.spark.cpu_s())
        sending.start()
        sent: steady.Told = processes.heard(mine, sending)
        took_s = time.monotonic() - began
        busy = [(after - before) / took_s for before, after in zip(cpu, _cpu(calve), strict=True)]
        seen, looks = stopped()
    jobs = calve.jobs(since_ms)
    first = reader.first_seen_us(seen, [one.sent_us for one in sent.requests])
    visible = [at - one.sent_us for one, at in zip(sent.requests, first, strict=True) if at is not None]
    landed = [sent.landed_us[one.token] - one.sent_us for one in sent.requests if one.token in sent.landed_us]
    return Fresh(
        tables=len(tables),
        rate=rate,
        keys=keys,
        achieved=sent.events / sent.seconds,
        ack=Percentiles.of_us([one.acknowledged_us - one.sent_us for one in sent.requests]),
        landed=Percentiles.of_us(landed),
        duckdb=Percentiles.of_us(visible),
        unseen=len(first) - len(visible),
        looks_per_s=looks / took_s,
        jobs=len(jobs),
        job_ms=Percentiles.of(job.whole_ms for job in jobs).p50_ms,
        stages_ms=median_of([job.stages_ms for job in jobs]),
        table_ms=median_of([job.table_ms for job in jobs]),
        cpu_cores={"server": busy[0], "spark": busy[1]},
    )


def _cpu(calve: Pipeline) -> tuple[float, float]:
    return calve.server.cpu_s(), calve.spark.cpu_s()


def shown(found: Sequence[Fresh]) -> str:
    head = ["POST to visible", "events/s", "sent", "ack p50 ms", "landed p50", "p95", "p99"]
    head += ["DuckDB p50 ms", "p95", "p99", "batches", "met", "where the median goes"]
    rows = []
    for one in found:
        aims = AIMS_MS.get(one.tables, {})
        is_met = all(getattr(one.duckdb, name) <= aim for name, aim in aims.items()) and not one.unseen
        figures = [one.achieved, one.ack.p50_ms]
        figures += [one.landed.p50_ms, one.landed.p95_ms, one.landed.p99_ms]
        figures += [one.duckdb.p50_ms, one.duckdb.p95_ms, one.duckdb.p99_ms, one.jobs]
        where = told({"wait for the cut": one.waits_ms, **one.stages_ms})
        where += f" (of one table: {told(one.table_ms)})" if one.table_ms else ""
        cores = told(one.cpu_cores, "cores")
        title = f"{one.tables} table{'s' if one.tables > 1 else ''} of {one.keys:,} rows"
        rows.append([title, f"{one.rate:,}", *map(figure, figures), met(is_met), f"{where}; {cores}"])
    return table(head, rows)
