"""Measures ingest: how quickly changes are durable, and how quickly every engine sees them.

    python -m bench.ingest [--part PART …] [--stack STACK] [--quick] [--workers N] [--rows N] [--json FILE]

    ack         durable acknowledgements over HTTP, beside a file that is synced and a bare ASGI app
    convert     a type change that Iceberg cannot widen, on 1 M rows
    end-to-end  changes from POST until all are visible, beside a hand-written Structured Streaming job
    first-load  10 M rows from the first POST until all are visible, and the memory of the worker
    freshness   POST until DuckDB sees it, at 500 and 5,000 events/s, on one table and on ten, beside that job
    mirror      the same on mirrors of 10,000, 1 M and 10 M rows, with integer keys and text keys
    publish     where the time of one publish goes, in wall time and in processor time
    rebuild     a mirror of 10 M rows from its changes table

Everything runs on this machine, from one temporary folder, over loopback: with --stack embedded (the default)
on SQLite and files, with --stack production on a PostgreSQL and an S3 server that are started for it. `ack`
is always measured on SQLite. Without --part all are measured, one after the other. --quick is for a first
look: a few seconds for each figure, and no mirror of 10 M rows.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import os
import platform
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from bench.ingest.options import ABOUT, STACKS, Options

RESULTS = Path(__file__).resolve().parents[1] / "results"
PARTS = ("ack", "convert", "end-to-end", "first-load", "freshness", "mirror", "publish", "rebuild")


def main() -> None:
    given = _arguments()
    options = Options(quick=given.quick, workers=given.workers, stack=given.stack, rows=given.rows)
    # Leave the blocks below in order, so that every process is ended whichever way we are.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    began = time.monotonic()
    found: dict[str, Any] = {}
    for name in given.part or PARTS:
        with tempfile.TemporaryDirectory(prefix="calve-bench-ingest-", ignore_cleanup_errors=True) as folder:
            _say(f"{name}, on {ABOUT['embedded' if name == 'ack' else options.stack]}")
            found[name] = _part(name)(Path(folder), options, _say)
            print(flush=True)
    _write(found, given, time.monotonic() - began)


def _part(name: str) -> Callable[..., dict[str, Any]]:
    # Imported when it is needed: the producers are processes that read this module first.
    module = importlib.import_module(f"bench.ingest.{name.replace('-', '_')}")
    run: Callable[..., dict[str, Any]] = module.run
    return run


def _arguments() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(
        prog="python -m bench.ingest",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    arguments.add_argument("--part", nargs="+", choices=PARTS, help="only these; all if left out")
    arguments.add_argument("--quick", action="store_true", help="for a first look only")
    arguments.add_argument("--workers", type=int, default=1, help="server processes of Calve")
    arguments.add_argument("--stack", choices=STACKS, default="embedded", help="what the lake stands on")
    arguments.add_argument("--rows", type=int, help="rows of convert, first-load and rebuild")
    arguments.add_argument("--json", type=Path, help="where the result goes; bench/results/ if not said")
    return arguments.parse_args()


def _write(found: dict[str, Any], given: argparse.Namespace, took_s: float) -> None:
    now = datetime.datetime.now(datetime.UTC)
    about = {
        "at": now.isoformat(timespec="seconds"),
        "took_s": round(took_s, 1),
        "cores": os.cpu_count(),
        "load_average": os.getloadavg(),
        "machine": platform.platform(),
        "python": platform.python_version(),
        "quick": given.quick,
        "workers": given.workers,
        "stack": given.stack,
    }
    file = given.json or RESULTS / f"ingest-{given.stack}-{now:%Y%m%dT%H%M%SZ}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(orjson.dumps({"about": about, "parts": found}, option=orjson.OPT_INDENT_2))
    _say(f"{took_s:.0f} s in all; {file}")


def _say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)


if __name__ == "__main__":
    main()
