"""`bench.ingest.spark_table` as a child process that is asked and answers; ended by its id, with its JVM."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.ingest.pipeline import MASTER, MEMORY, SPARK_PLACE, Pipeline
from bench.rivals.server import Server

STOP_S = 20.0


class SparkChild:
    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log
        self.server = Server("spark", 0, "", process.pid, 0.0, 0.0)

    def ask(self, do: str, **facts: Any) -> Any:
        """The answer; waits for it."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **facts}) + "\n")
        self._process.stdin.flush()
        return self.heard().get("done")

    def heard(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                found: dict[str, Any] = json.loads(line)
                return found
        tail = self._log.read_text(errors="replace")[-3000:]
        raise RuntimeError(f"Spark ended with {self._process.wait()}:\n{tail}")


@contextlib.contextmanager
def spark_child(calve: Pipeline, folder: Path) -> Iterator[SparkChild]:
    log = folder / "spark.log"
    words = ["setpriv", "--pdeathsig", "KILL", "--", sys.executable, "-m", "bench.ingest.spark_table"]
    words += ["--uri", calve.url, "--master", MASTER, "--memory", MEMORY]
    with log.open("ab") as errors:
        process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, **SPARK_PLACE, **(calve.s3.settings if calve.s3 else {})},
            start_new_session=True,  # so that its group can be ended, and nothing else
            text=True,
        )
    try:
        child = SparkChild(process, log)
        child.heard()
        yield child
    finally:
        assert process.stdin is not None
        process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
