"""Measures Calve beside Iceberg's reference server, in one run, one row after the other on both.

    python -m bench.catalog [--rounds N] [--quick] [--database sqlite|postgres] [--fast-paths on|off]
                            [--rival-calve PATH] [--workers N] [--json FILE]

Both run on the same kind of database (SQLite with a write-ahead log, or PostgreSQL) and write their files
below one temporary folder. Every figure is the median of the rounds; in each round the servers change places;
both are warmed up. `--rival-calve` measures against the `calve` command of another commit instead of the
reference server. `--self-check` puts the reference server beside itself: ratios far from 1 show how noisy the
machine is.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import orjson

from bench.catalog import report
from bench.catalog.report import Side
from bench.catalog.rows import ROWS, Row
from bench.catalog.target import Target, prepare
from bench.rivals.calve import calve
from bench.rivals.fixture import fixture
from bench.rivals.server import Server
from tests.contract.rck import maven
from tests.harness.postgres import PostgresServer

RESULTS = Path(__file__).resolve().parents[1] / "results"
IDLE_S = 2.0

Start = Callable[[Path], contextlib.AbstractContextManager[Server]]


@dataclass(frozen=True, slots=True)
class Pace:
    rounds: int
    sample_s: int
    warm_up_s: int
    starts: int
    budget_s: float  # no further round begins if it would end later than this


FULL = Pace(rounds=5, sample_s=2, warm_up_s=3, starts=3, budget_s=780)
QUICK = Pace(rounds=1, sample_s=1, warm_up_s=1, starts=1, budget_s=100)


def main() -> None:
    given = _arguments()
    pace = QUICK if given.quick else FULL
    pace = replace(pace, rounds=given.rounds or pace.rounds)
    began = time.monotonic()
    with contextlib.ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="calve-bench-")))
        rival_start, our_start = _starts(given, folder, running)
        rival = Side("calve before" if given.rival_calve else "fixture")
        ours = Side("fixture again" if given.self_check else "calve")
        _say("starting each server a few times")
        _measure_starts(folder, [(rival, rival_start), (ours, our_start)], pace.starts)
        targets = [
            (
                rival,
                _ready(running, rival_start, folder / "rival", rival, strict=given.rival_calve is not None),
            ),
            (ours, _ready(running, our_start, folder / "ours", ours, strict=not given.self_check)),
        ]
        rows = [row for row in ROWS if not given.rows or row.key in given.rows]
        _measure(rows, targets, pace, began + pace.budget_s)
        for side, target in targets:
            side.loaded_mb = target.server.resident_mb()
    _publish(rows, rival, ours, given, time.monotonic() - began)


def _arguments() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(
        prog="python -m bench.catalog",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    arguments.add_argument(
        "--rounds", type=int, help="how often each row is measured, time allowing; 5, or 1 with --quick"
    )
    arguments.add_argument("--quick", action="store_true", help="within two minutes; for a first look only")
    arguments.add_argument(
        "--database", choices=["sqlite", "postgres"], default="sqlite", help="what both servers use"
    )
    arguments.add_argument(
        "--fast-paths", choices=["on", "off"], default="on", help="Calve's setting fast_paths"
    )
    arguments.add_argument(
        "--rival-calve",
        type=Path,
        help="the calve command of another commit, instead of the reference server",
    )
    arguments.add_argument("--workers", type=int, default=1, help="server processes of Calve")
    arguments.add_argument("--rows", nargs="*", choices=[row.key for row in ROWS], help="only these rows")
    arguments.add_argument("--json", type=Path, help="where the result goes; bench/results/ if not said")
    arguments.add_argument("--self-check", action="store_true", help="the reference server beside itself")
    return arguments.parse_args()


def _starts(given: argparse.Namespace, folder: Path, running: contextlib.ExitStack) -> tuple[Start, Start]:
    postgres = running.enter_context(PostgresServer.started()) if given.database == "postgres" else None
    class_path = "" if given.rival_calve else maven.class_path(folder / "maven")

    def database() -> str | None:
        return postgres.database() if postgres else None

    def start_fixture(home: Path) -> contextlib.AbstractContextManager[Server]:
        return fixture(home, class_path=class_path, database=database())

    def start_rival_calve(home: Path) -> contextlib.AbstractContextManager[Server]:
        return calve(home, database=database(), workers=given.workers, command=given.rival_calve)

    def start_calve(home: Path) -> contextlib.AbstractContextManager[Server]:
        fast_paths = given.fast_paths == "on"
        return calve(home, database=database(), workers=given.workers, fast_paths=fast_paths)

    if given.self_check:
        return start_fixture, start_fixture
    return (start_rival_calve if given.rival_calve else start_fixture), start_calve


def _measure_starts(folder: Path, sides: list[tuple[Side, Start]], count: int) -> None:
    for number in range(count):
        for index, (side, start) in enumerate(sides):
            home = folder / f"start-{index}-{number}"
            with start(home) as server:
                side.start_s.append(server.start_s)
                side.start_cpu_s.append(server.start_cpu_s)
            shutil.rmtree(home)


def _ready(running: contextlib.ExitStack, start: Start, folder: Path, side: Side, *, strict: bool) -> Target:
    server = running.enter_context(start(folder))
    time.sleep(IDLE_S)
    side.idle_mb = server.resident_mb()
    _say(f"filling {side.name}")
    return prepare(server, strict=strict)


def _measure(rows: list[Row], targets: list[tuple[Side, Target]], pace: Pace, deadline: float) -> None:
    _say("warming up")
    for row in rows:
        for _, target in targets:
            row.work.measure(target, max(row.clients), pace.warm_up_s)
    for number in range(1, pace.rounds + 1):
        _say(f"round {number} of {pace.rounds}")
        began = time.monotonic()
        _round(rows, targets if number % 2 else targets[::-1], pace.sample_s)
        if number < pace.rounds and 2 * time.monotonic() - began > deadline:
            _say("no time for another round")
            break


def _round(rows: list[Row], targets: list[tuple[Side, Target]], sample_s: int) -> None:
    for row in rows:
        for clients in row.clients:
            for side, target in targets:
                side.samples[row.key, clients].append(row.work.measure(target, clients, sample_s))


def _publish(rows: list[Row], rival: Side, ours: Side, given: argparse.Namespace, took_s: float) -> None:
    found = report.lines(rows, rival, ours, None if given.rival_calve else given.database)
    print(report.table(found, rival, ours))
    print()
    print(report.where_the_time_goes(rows, rival, ours))
    for note in report.notes(rows, (rival, ours)):
        print(f"* {note}")
    now = datetime.datetime.now(datetime.UTC)
    about = {
        "at": now.isoformat(timespec="seconds"),
        "took_s": round(took_s, 1),
        "cores": os.cpu_count(),
        "load_average": os.getloadavg(),
        "machine": platform.platform(),
        "python": platform.python_version(),
        "database": given.database,
        "fast_paths": given.fast_paths == "on",
        "rival": "calve before" if given.rival_calve else "fixture",
        "workers": given.workers,
        "quick": given.quick,
    }
    file = given.json or RESULTS / f"catalog-{given.database}-{now:%Y%m%dT%H%M%SZ}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(
        orjson.dumps(report.as_json(rows, found, (rival, ours), about), option=orjson.OPT_INDENT_2)
    )
    _say(f"{took_s:.0f} s in all; {file}")


def _say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)


if __name__ == "__main__":
    main()
