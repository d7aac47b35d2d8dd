"""Measures ingest: how quickly changes are durable, and how quickly every engine sees them.

    python -m bench.ingest [--part PART …] [--quick] [--workers N] [--json FILE]

    ack         durable acknowledgements over HTTP, beside a file that is synced and a bare ASGI app
    end-to-end  changes from POST until all are visible, beside a hand-written Structured Streaming job
    freshness   POST until DuckDB sees it, at 500 and 5,000 events/s, on one table and on ten
    mirror      the same on mirrors of 10,000, 1 M and 10 M rows
    publish     where the time of one publish goes, in wall time and in processor time

Everything runs on this machine, from one temporary folder, over loopback. Without --part all are
measured, one after the other. --quick is for a first look: a few seconds for each figure, and no mirror of
10 M rows.
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

RESULTS = Path(__file__).resolve().parents[1] / "results"
PARTS = ("ack", "end-to-end", "freshness", "mirror", "publish")


def main() -> None:
    given = _arguments()
    # Leave the blocks below in order, so that every process is ended whichever way we are.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    began = time.monotonic()
    found: dict[str, Any] = {}
    for name in given.part or PARTS:
        with tempfile.TemporaryDirectory(prefix="calve-bench-ingest-", ignore_cleanup_errors=True) as folder:
            _say(name)
            found[name] = _part(name)(Path(folder), quick=given.quick, workers=given.workers, say=_say)
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
    }
    file = given.json or RESULTS / f"ingest-{now:%Y%m%dT%H%M%SZ}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(orjson.dumps({"about": about, "parts": found}, option=orjson.OPT_INDENT_2))
    _say(f"{took_s:.0f} s in all; {file}")


def _say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)


if __name__ == "__main__":
    main()
