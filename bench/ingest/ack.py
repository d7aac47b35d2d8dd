"""Durable acknowledgement: how many events a second, and how long a producer waits for its answer.

A real server without a worker, real HTTP, native inserts; the journal is large enough that nobody is refused.
Beside each figure stands what it cannot be better than on this machine at this time: the same bytes written
and synced to a file, and a bare ASGI app with the same producers.
"""

from __future__ import annotations

import statistics
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.ingest import costs, floors, load
from bench.ingest.options import Options
from bench.ingest.report import Percentiles, figure, met, table
from bench.rivals.server import Server
from tests.harness.server import CalveServer

RATE_AIM = 100_000
P99_AIM_MS = 20.0
BUFFER_BYTES = 64 * 2**30
SETTINGS = {"CALVE_BUFFER_BYTES_MAX": str(BUFFER_BYTES)}


@dataclass(frozen=True, slots=True)
class Pace:
    rounds: int
    sample_s: float
    warm_up_s: float
    cases: tuple[tuple[int, int], ...] = ((1, 1), (1, 8), (100, 1), (100, 8), (1_000, 1), (1_000, 8))


FULL = Pace(rounds=3, sample_s=8, warm_up_s=3)
QUICK = Pace(rounds=1, sample_s=1.5, warm_up_s=0.5)


@dataclass(frozen=True, slots=True)
class Sample:
    events_per_s: float
    latency: Percentiles
    mb_per_s: float
    server_cpu_us: float  # for one event
    client_cpu_us: float

    @classmethod
    def of(cls, sent: load.Sent, server_cpu_s: float) -> Sample:
        return cls(
            sent.events / sent.seconds,
            Percentiles.of(sent.latencies_ms),
            sent.body_bytes / sent.seconds / 1e6,
            server_cpu_s / sent.events * 1e6,
            sent.client_cpu_s / sent.events * 1e6,
        )


Case = tuple[str, int, int]  # who, events of a request, producers
Samples = dict[Case, list[Sample]]


def run(folder: Path, options: Options, say: Callable[[str], None]) -> dict[str, Any]:
    pace = QUICK if options.quick else FULL
    samples: Samples = {}
    settings = {**SETTINGS, "CALVE_WORKERS": str(options.workers)}
    with CalveServer.started(folder / "ack", settings) as calve, floors.bare(folder) as bare:
        server = Server("calve", calve.port, "main", calve.pid, 0.0, 0.0)
        say("ack: warming up")
        for one in (server, bare):
            _loaded(one, 100, 2, pace.warm_up_s)
        for number in range(1, pace.rounds + 1):
            say(f"ack: round {number} of {pace.rounds}")
            _round(samples, folder, (server, bare), pace)
    where = costs.of_ack(2_000 if options.quick else 20_000, folder)
    _print(samples, where)
    return {"samples": _as_json(samples), "cpu_us_per_event": where}


def _round(samples: Samples, folder: Path, servers: tuple[Server, Server], pace: Pace) -> None:
    for events, producers in pace.cases:
        for server in servers:
            found = _loaded(server, events, producers, pace.sample_s)
            samples.setdefault((server.name, events, producers), []).append(found)
        if producers == 1:
            floor = Sample.of(floors.synced(folder, events, pace.sample_s / 2), 0.0)
            samples.setdefault(("file", events, 1), []).append(floor)


def _loaded(server: Server, events: int, producers: int, seconds: float) -> Sample:
    run_name = uuid.uuid4().hex[:8]
    specs = [
        load.Spec(server.port, number, events, seconds, run_name, accepted=server.name == "calve")
        for number in range(producers)
    ]
    cpu_s = server.cpu_s()
    sent = load.in_processes(specs)
    return Sample.of(sent, server.cpu_s() - cpu_s)


def _print(samples: Samples, where: dict[str, float]) -> None:
    head = [
        "durable acknowledgement",
        "producers",
        "events/s",
        "p50 ms",
        "p99 ms",
        "MB/s",
        "server cpu µs/event",
    ]
    head += ["client cpu", "bare events/s", "bare cpu", "file events/s", "file p99 ms", "met"]
    rows = []
    for (who, events, producers), taken in samples.items():
        if who != "calve":
            continue
        bare, file = samples["bare", events, producers], samples.get(("file", events, 1), [])
        rate, p99 = _median(taken, _rate), _median(taken, _p99)
        is_met = (rate >= RATE_AIM and p99 <= P99_AIM_MS) if events == 1_000 else None
        figures = [rate, _median(taken, _p50), p99, _median(taken, lambda s: s.mb_per_s)]
        figures += [_median(taken, lambda s: s.server_cpu_us), _median(taken, lambda s: s.client_cpu_us)]
        figures += [_median(bare, _rate), _median(bare, lambda s: s.server_cpu_us)]
        figures += [_median(file, _rate), _median(file, _p99)]
        title = f"{events:,} event{'s' if events > 1 else ''} a request"
        rows.append([title, str(producers), *map(figure, figures), met(is_met)])
    print(table(head, rows))
    print(f"aim: {RATE_AIM:,} events/s in batches of 1,000, p99 {P99_AIM_MS:g} ms")
    print()
    print(costs.shown("acknowledging", where))


def _median(taken: list[Sample], value: Callable[[Sample], float]) -> float:
    return statistics.median(map(value, taken)) if taken else float("nan")


def _rate(sample: Sample) -> float:
    return sample.events_per_s


def _p50(sample: Sample) -> float:
    return sample.latency.p50_ms


def _p99(sample: Sample) -> float:
    return sample.latency.p99_ms


def _as_json(samples: Samples) -> list[dict[str, Any]]:
    return [
        {"who": who, "events": events, "producers": producers, "samples": [asdict(one) for one in taken]}
        for (who, events, producers), taken in samples.items()
    ]
