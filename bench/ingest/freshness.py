"""From POST until another engine sees it: a producer at a constant rate, on one table and on ten.

Two look: one asks the server whether the request's token has landed, the other is DuckDB, which reads the
newest marker of each mirror through the catalog. A request on ten tables counts as visible when all ten are.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.ingest import reader, steady
from bench.ingest.pipeline import Pipeline, pipeline
from bench.ingest.report import Percentiles, figure, median_of, met, table, told

AIMS_MS = {1: {"p50_ms": 1_200.0, "p95_ms": 2_000.0}, 10: {"p50_ms": 2_000.0, "p95_ms": 3_000.0}}
READER_START_S = 120.0


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


def run(folder: Path, *, quick: bool, workers: int, say: Callable[[str], None]) -> dict[str, Any]:
    pace = QUICK if quick else FULL
    found = []
    say("freshness: starting the server and its worker")
    with pipeline(folder / "lake", workers=workers) as calve:
        for count in pace.tables:
            for rate in pace.rates:
                names = [f"fresh_{count}_{rate}.orders_{number}" for number in range(count)]
                calve.preload(names, pace.keys)
                say(f"freshness: {rate:,} events/s on {count} table{'s' if count > 1 else ''}")
                found.append(measure(calve, names, rate, pace.keys, pace.warm_up_s, pace.seconds))
    print(shown(found))
    return {"cases": [asdict(one) | {"waits_ms": one.waits_ms} for one in found]}


def measure(
    calve: Pipeline, tables: Sequence[str], rate: int, keys: int, warm_up_s: float, seconds: float
) -> Fresh:
    """The tables are there, with `keys` rows each."""
    context = multiprocessing.get_context("spawn")
    source = f"steady-{uuid.uuid4().hex[:8]}"
    spec = steady.Spec(calve.port, tuple(tables), rate, keys, warm_up_s, seconds, source)
    stop, (mine, theirs), (ours, its) = context.Event(), context.Pipe(), context.Pipe()
    looking = context.Process(target=reader.read, args=(calve.url, list(tables), stop, its), daemon=True)
    sending = context.Process(target=steady.produce, args=(spec, theirs), daemon=True)
    with _running(looking, sending):
        looking.start()
        _heard(ours, looking)
        since_ms = time.time_ns() // 1_000_000 + int(warm_up_s * 1000)
        began, cpu = time.monotonic(), (calve.server.cpu_s(), calve.spark.cpu_s())
        sending.start()
        sent: steady.Told = _heard(mine, sending)
        took_s = time.monotonic() - began
        busy = [(after - before) / took_s for before, after in zip(cpu, _cpu(calve), strict=True)]
        time.sleep(2 * reader.LOOK_EVERY_S + 1)
        stop.set()
        seen, looks = _heard(ours, looking)
    jobs = calve.jobs(since_ms)
    first = reader.first_seen_us(seen, [one.sent_us for one in sent.requests])
    visible = [at - one.sent_us for one, at in zip(sent.requests, first, strict=True) if at is not None]
    landed = [sent.landed_us[one.token] - one.sent_us for one in sent.requests if one.token in sent.landed_us]
    return Fresh(
        tables=len(tables),
        rate=rate,
        keys=keys,
        achieved=sent.events / sent.seconds,
        ack=_percentiles([one.acknowledged_us - one.sent_us for one in sent.requests]),
        landed=_percentiles(landed),
        duckdb=_percentiles(visible),
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


def _percentiles(values_us: Sequence[int]) -> Percentiles:
    return Percentiles.of(value / 1000 for value in values_us)


@contextlib.contextmanager
def _running(*children: multiprocessing.context.SpawnProcess) -> Iterator[None]:
    try:
        yield
    finally:
        for child in children:
            if child.pid is not None:
                child.join(5)
                if child.is_alive():
                    child.kill()


def _heard(pipe: Any, child: multiprocessing.context.SpawnProcess) -> Any:
    while not pipe.poll(0.5):
        if not child.is_alive() and not pipe.poll(0):
            raise RuntimeError(f"{child.name} ended with {child.exitcode}; its reason is above")
    return pipe.recv()


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
