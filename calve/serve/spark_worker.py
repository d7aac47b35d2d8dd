"""The Spark worker of the embedded default: a child process that the server starts and looks after.

It gets the server's address, and credentials of its own where the server asks for tokens. If it dies it is
started again, more and more slowly; when the server stops or dies, it stops too.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import orjson

from calve.settings import Settings

RESTART_DELAY_S_MAX = 60.0
SETTLED_S = 60.0
STOP_S = 25.0
PRINCIPAL = "calve-worker"
NOT_POSSIBLE = 78  # the worker's word for: it will not run on this machine, whatever you try

_log = logging.getLogger(__name__)


def command(settings: Settings, uri: str, *, parent_pid: int | None = None) -> list[str]:
    """The words that start a worker."""
    words = [sys.executable, "-m", "spark_jobs.worker", "--uri", uri]
    words += ["--master", settings.spark_master, "--memory", settings.spark_memory]
    words += ["--slots", str(settings.worker_slots)]
    return words if parent_pid is None else [*words, "--parent-pid", str(parent_pid)]


def environment(settings: Settings) -> dict[str, str]:
    """How executors reach the store."""
    given = {
        "CALVE_S3_ENDPOINT": settings.s3_endpoint,
        "CALVE_S3_REGION": settings.s3_region,
        "CALVE_S3_ACCESS_KEY_ID": settings.s3_access_key_id,
        "CALVE_S3_SECRET_ACCESS_KEY": settings.s3_secret_access_key,
    }
    return {name: value for name, value in given.items() if value is not None}


def credentials(settings: Settings) -> dict[str, str]:
    """A principal of its own for the worker beside this server, with a new secret at each start."""
    if settings.auth == "open":
        return {}
    from calve.opening import open_database
    from catalog.errors import AlreadyExists
    from catalog.identity.principals import PrincipalStore
    from catalog.identity.roles import EVERY_WAREHOUSE, Role

    database = open_database(settings)
    try:
        store = PrincipalStore(database)
        try:
            secret = store.create(PRINCIPAL, {EVERY_WAREHOUSE: Role.WRITER})
        except AlreadyExists:
            secret = store.rotate(PRINCIPAL)
    finally:
        database.close()
    return {"CALVE_WORKER_CREDENTIAL": f"{PRINCIPAL}:{secret}"}


class SparkWorker:
    """Runs in a thread of the process that owns the server's life. `start` returns at once."""

    def __init__(self, settings: Settings, uri: str, secrets: dict[str, str] | None = None) -> None:
        self._command = command(settings, uri, parent_pid=os.getpid())
        self._environment = {**os.environ, **environment(settings), **(secrets or {})}
        self._stopping = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._watch, name="spark-worker", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask it to finish, and end it if it does not."""
        self._stopping.set()
        child = self._child
        if child is not None and child.poll() is None:
            child.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(STOP_S)
            if child.poll() is None:
                child.kill()
        self._thread.join(5)

    def _watch(self) -> None:
        delay_s = 1.0
        while not self._stopping.is_set():
            started_s = time.monotonic()
            exit_code = self._run()
            if self._stopping.is_set():
                return
            if exit_code == NOT_POSSIBLE:
                _log.error("the Spark worker cannot run here; changes are kept until one does")
                return
            settled = time.monotonic() - started_s > SETTLED_S
            delay_s = 1.0 if settled else min(delay_s * 2, RESTART_DELAY_S_MAX)
            _log.error("the Spark worker died", extra={"exit_code": exit_code, "restart_in_s": delay_s})
            self._stopping.wait(delay_s)

    def _run(self) -> int:
        with subprocess.Popen(  # noqa: S603 - our own interpreter, with our own module
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=self._environment,
            start_new_session=True,  # a Ctrl-C in the terminal is for the server, which stops the worker
        ) as child:
            self._child = child
            assert child.stdout is not None
            for line in child.stdout:
                self._say(line)
            return child.wait()

    def _say(self, line: bytes) -> None:
        """A line of the worker becomes a line of the server's log."""
        try:
            said: Any = orjson.loads(line)
        except orjson.JSONDecodeError:
            said = None
        if not isinstance(said, dict):
            _log.info("spark worker", extra={"line": line.decode(errors="replace").rstrip()[:2000]})
            return
        event = str(said.pop("event", "said"))
        level = logging.WARNING if "error" in said else logging.INFO
        _log.log(level, "spark worker: %s", event, extra={"worker": said})
