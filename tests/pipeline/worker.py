"""The Spark worker as a child process of the tests, against any server; it can be killed and started anew."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import httpx

from tests.harness.process import Child
from tests.harness.stacks import Stack

START_S = 240
Only = Literal["landing", "maintenance"]
# One small job after another: compiled code never pays. A worker that `calve serve` starts has the defaults.
QUICK_START = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


@dataclass(frozen=True, slots=True)
class Master:
    """Where Spark runs. Executors on other hosts reach the driver at `driver_host`, and do not have its
    folder for temporary files.
    """

    address: str = "local[2]"
    driver_host: str | None = None
    driver_folder: Path | None = None

    @property
    def environment(self) -> dict[str, str]:
        return {"TMPDIR": str(self.driver_folder)} if self.driver_folder is not None else {}

    @property
    def settings(self) -> dict[str, str]:
        return {"spark.driver.host": self.driver_host} if self.driver_host is not None else {}


LOCAL = Master()


class Worker:
    """One worker. Ended by its id, its JVM with it.

    With `only="landing"` it starts with less work: nothing is prepared for maintenance.
    """

    def __init__(
        self,
        stack: Stack,
        folder: Path,
        *,
        slots: int = 2,
        master: Master = LOCAL,
        only: Only | None = None,
        spark_settings: Mapping[str, str] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        words = [sys.executable, "-m", "spark_jobs.worker", "--uri", stack.url]
        words += ["--master", master.address, "--memory", "1g", "--slots", str(slots)]
        words += ["--only", only] if only is not None else []
        for key, value in {**QUICK_START, **master.settings, **(spark_settings or {})}.items():
            words += ["--conf", f"{key}={value}"]
        environment = os.environ | (stack.s3.settings if stack.s3 else {}) | master.environment
        self._url = stack.url
        self._child = Child(words, log=folder / "worker.log", environment=environment)

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def log(self) -> Path:
        return self._child.log

    def start(self, *, wait: bool = True) -> None:
        """`wait` until it asks for work."""
        began_ms = time.time() * 1000
        self._child.start(lambda: not wait or self._has_asked(began_ms), timeout_s=START_S)

    def stop(self) -> int:
        return self._child.stop(timeout_s=40)

    def kill(self) -> None:
        """SIGKILL to the driver and its JVM."""
        self._child.kill()

    def _has_asked(self, since_ms: float) -> bool:
        try:
            status = httpx.get(f"{self._url}/status", timeout=10).json()
        except httpx.HTTPError:
            return False
        return any(worker["seen-ms"] >= since_ms for worker in status["landing"]["workers"])
