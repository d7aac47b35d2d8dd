"""The server as a user runs it: `calve serve` as a child process, told everything by CALVE_* variables.

    server = CalveServer(folder, {"CALVE_WORKERS": "2"})
    server.start()                       # returns when /ready answers 200
    httpx.get(f"{server.url}/v1/config")
    server.kill(); server.start()        # a crash, and what is there afterwards

Without CALVE_HOME among the settings its home is `folder/lake`. The port stays the same over restarts.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.harness import components
from tests.harness.ports import free_port, wait_until_free
from tests.harness.process import Child


class CalveServer:
    """One server. Ended by its id, its workers with it."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.port = free_port()
        self.settings = {
            "CALVE_HOME": str(folder / "lake"),
            "CALVE_HOST": "127.0.0.1",
            "CALVE_PORT": str(self.port),
            "CALVE_WORKER": "no",  # a test that lands changes says so: Spark is not for every server
            **_chosen_for_all(),
            **(settings or {}),
        }
        self._child = Child(
            [str(components.calve()), "serve"],
            log=folder / "calve.log",
            environment=environment(self.settings),
            folder=folder,  # so that no calve.toml of the project is read
        )

    @classmethod
    @contextlib.contextmanager
    def started(cls, folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[CalveServer]:
        """A running server; it is stopped at the end of the block."""
        server = cls(folder, settings)
        server.start()
        try:
            yield server
        finally:
            server.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def running(self) -> bool:
        return self._child.running

    @property
    def log(self) -> Path:
        return self._child.log

    def start(self, *, timeout_s: float = 120) -> None:
        wait_until_free(self.port)
        self._child.start(self._is_ready, timeout_s=timeout_s)

    def stop(self, *, timeout_s: float = 30) -> int:
        """SIGTERM: a graceful stop. The exit code."""
        return self._child.stop(timeout_s=timeout_s)

    def kill(self) -> None:
        """SIGKILL to the server and its workers, as when the machine dies."""
        self._child.kill()

    def restart(self) -> None:
        self.stop()
        self.start()

    def command(self, *words: str, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
        """Run `calve` with these words and the settings of the server, whether or not it runs."""
        return subprocess.run(
            [str(components.calve()), *words],
            env=environment(self.settings),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def _is_ready(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/ready")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False  # not listening yet, or just being born
        finally:
            connection.close()


def _chosen_for_all() -> dict[str, str]:
    """`CALVE_TEST_FAST_PATHS=0 pytest …` runs every server without its fast paths."""
    chosen = os.environ.get("CALVE_TEST_FAST_PATHS")
    return {} if chosen is None else {"CALVE_FAST_PATHS": chosen}


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    """This process's environment with these settings and no other setting of the server in it."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CALVE_")}
    return {**inherited, **settings}
