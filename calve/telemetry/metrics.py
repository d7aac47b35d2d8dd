"""The text of /metrics, and the metrics of the server process itself.

Every metric is defined with prometheus_client where it is measured. With several server processes,
prometheus_client keeps the values in files under PROMETHEUS_MULTIPROC_DIR, which calve/server/run.py sets
before anything imports the library, and the process that answers adds them up. `process_*` and `python_*`
exist with one process only.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from calve import __version__

DIRECTORY_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LATENCY_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

disable_created_metrics()  # type: ignore[no-untyped-call]
_info = Gauge("calve_info", "The version of the server.", ("version",), multiprocess_mode="livemax")
_processes = Gauge("calve_server_processes", "Server processes that are alive.", multiprocess_mode="livesum")
_restarts = Counter("calve_worker_restarts_total", "Workers that died and were replaced.")


def record_start(workers: int) -> None:
    """Called once in each server process.

    The files of dead processes stay, so more files than the first processes have means a replacement.
    """
    _info.labels(__version__).set(1)
    _processes.set(1)
    directory = os.environ.get(DIRECTORY_VARIABLE)
    if directory is not None and len(list(Path(directory).glob("counter_*.db"))) > workers + 1:
        _restarts.inc()


def render() -> bytes:
    """The text that Prometheus reads, over all server processes."""
    directory = os.environ.get(DIRECTORY_VARIABLE)
    if directory is None:
        return generate_latest()
    _forget_dead_processes(Path(directory))
    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=directory)  # type: ignore[no-untyped-call]
    return generate_latest(registry)


def _forget_dead_processes(directory: Path) -> None:
    """Delete the gauges of processes that are gone; their counters stay, so that no counter falls."""
    for pid in {int(file.stem.rpartition("_")[2]) for file in directory.glob("gauge_live*.db")}:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            with contextlib.suppress(FileNotFoundError):  # another process answers /metrics now, too
                mark_process_dead(pid, str(directory))  # type: ignore[no-untyped-call]
