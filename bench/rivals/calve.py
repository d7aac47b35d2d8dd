"""Calve as a catalog: `calve serve --no-worker`, on SQLite or on PostgreSQL, with files on this disk.

The rival has no pipeline, so Calve runs without its Spark worker: a JVM that warms up beside the measurement
would take a core from both.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from bench.rivals.server import Server, serving
from tests.harness import components
from tests.harness.ports import free_port
from tests.harness.process import Child
from tests.harness.server import environment

WAREHOUSE = "main"


@contextlib.contextmanager
def calve(
    folder: Path,
    *,
    database: str | None = None,
    workers: int = 1,
    fast_paths: bool = True,
    command: Path | None = None,
) -> Iterator[Server]:
    """A fresh server whose home is under `folder`. `database` is an address, None SQLite in the home.

    `command` is the `calve` of another commit; it must not be told of settings that it does not know.
    """
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    program = str(command or components.calve())
    settings = {"CALVE_WORKERS": str(workers)}
    if not fast_paths:
        settings["CALVE_FAST_PATHS"] = "false"
    if database:
        settings["CALVE_DATABASE"] = database
        migrate = [program, "migrate", "--home", str(folder / "lake")]
        subprocess.run(migrate, env=environment(settings), cwd=folder, check=True, capture_output=True)
    child = Child(
        [
            program,
            "serve",
            "--no-worker",
            "--home",
            str(folder / "lake"),
            "--port",
            str(port),
        ],
        log=folder / "calve.log",
        environment=environment(settings),
        folder=folder,
    )
    with serving("calve", child, port=port, warehouse=WAREHOUSE) as server:
        yield server
