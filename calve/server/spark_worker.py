"""The Spark worker of the embedded default: a child process that the server starts and supervises.

It gets the server's address, and credentials of its own where the server requires tokens. If it ends, it is
started again after a delay that grows. If Java or a jar is missing, the supervisor looks again every few
seconds and starts the worker once it is there. When the server stops or dies, the worker stops too.

Why the worker does not run is written to the database, where `/ready` and `/status` of every server process
read it (ingest/landing/status.py).
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import orjson

from calve.settings import Settings
from spark_jobs import jars, java

RESTART_DELAY_S_MAX = 60.0
STABLE_S = 60.0
STOP_S = 25.0
REPEAT_S = 10.0  # a reason is written again so often; readers ignore one that is a minute old
PRINCIPAL = "calve-worker"
ENDING = ("not-possible", "spark-died")  # events after which the worker ends
STARTING = "starting: Spark needs 10 to 30 seconds"
_SPARK_LINE = re.compile(r"^\d{4}-\S+ (TRACE|DEBUG|INFO|WARN|ERROR|FATAL) (\S+): (.*)$", re.DOTALL)
_SPARK_LEVELS = {"WARN": logging.WARNING, "ERROR": logging.ERROR, "FATAL": logging.ERROR}
_RECORD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}

Report = Callable[[str | None, str | None], None]  # the worker's name; why it does not run, or None

_log = logging.getLogger(__name__)


def command(settings: Settings, uri: str, *, parent_pid: int | None = None) -> list[str]:
    """The command line of a worker."""
    words = [sys.executable, "-m", "spark_jobs.worker", "--uri", uri]
    words += ["--master", settings.spark_master, "--memory", settings.spark_memory]
    words += ["--slots", str(settings.worker_slots)]
    words += [word for name, value in spark_conf(settings).items() for word in ("--conf", f"{name}={value}")]
    return words if parent_pid is None else [*words, "--parent-pid", str(parent_pid)]


def spark_conf(settings: Settings) -> dict[str, str]:
    """The settings of Spark that have a name of their own here. `--conf` sets any other, and wins."""
    given = {
        "spark.driver.host": settings.spark_driver_host,
        "spark.driver.port": settings.spark_driver_port,
        "spark.blockManager.port": settings.spark_block_manager_port,
        "spark.sql.shuffle.partitions": settings.spark_shuffle_partitions,
        "spark.dynamicAllocation.maxExecutors": settings.spark_executors_max,
        "spark.eventLog.dir": settings.spark_event_log_dir,
    }
    if settings.spark_driver_host is not None:
        given["spark.driver.bindAddress"] = "0.0.0.0"
    if settings.spark_executors_max is not None:
        # Without an external shuffle service, an executor that has shuffle files is kept.
        given |= {"spark.dynamicAllocation.enabled": "true"}
        given |= {"spark.dynamicAllocation.shuffleTracking.enabled": "true"}
    if settings.spark_event_log_dir is not None:
        given["spark.eventLog.enabled"] = "true"
    return {name: str(value) for name, value in given.items() if value is not None}


def environment(settings: Settings) -> dict[str, str]:
    """The environment of the worker: storage settings, its credential, and its own address if Spark runs on
    this machine alone.
    """
    names = ("s3_endpoint", "s3_region", "s3_access_key_id", "s3_secret_access_key", "s3_path_style")
    given = settings.as_environment(*names, "worker_credential", "worker_token")
    if settings.spark_master.startswith("local"):
        # With an address Spark does not look up this machine's host name, which may not resolve.
        given["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")
    return given


def credentials(settings: Settings) -> dict[str, str]:
    """The credential of the worker beside this server, unless the settings have one for it.

    Its principal is shared by all servers.
    """
    if settings.auth == "open" or settings.worker_credential or settings.worker_token:
        return {}
    from calve.bootstrap import open_database
    from catalog.identity.principals import PrincipalStore
    from catalog.models import EVERY_WAREHOUSE, Role

    database = open_database(settings)
    try:
        secret = PrincipalStore(database).own_credential(PRINCIPAL, {EVERY_WAREHOUSE: Role.WRITER})
    finally:
        database.close()
    return {"CALVE_WORKER_CREDENTIAL": f"{PRINCIPAL}:{secret}"}


def missing() -> str | None:
    """What the worker needs and this machine lacks, with the command that brings it."""
    try:
        jars.installed()
        java.home()
    except (jars.JarsMissing, java.NoJava) as error:
        return str(error)
    return None


def report_to_database(settings: Settings, uri: str) -> Report:
    """Writes the worker's state where every server process reads it."""
    address = f"{socket.gethostname()}:{urlsplit(uri).port}"

    def report(worker: str | None, reason: str | None) -> None:
        from calve.bootstrap import open_database
        from calve.startup import StartupError
        from catalog.errors import CatalogError
        from ingest.landing.status import supervisor_row
        from ingest.store.jobs import Jobs

        try:
            database = open_database(settings)
            try:
                Jobs(database).seen(*supervisor_row(address, worker, reason))
            finally:
                database.close()
        except (StartupError, CatalogError) as error:
            _log.warning("the state of the Spark worker could not be written", extra={"reason": str(error)})

    return report


class SparkWorker:
    """Runs in a thread of the process that owns the server's life. `start` returns at once."""

    def __init__(
        self,
        settings: Settings,
        uri: str,
        secrets: dict[str, str] | None = None,
        report: Report = lambda _worker, _reason: None,
    ) -> None:
        self._command = command(settings, uri, parent_pid=os.getpid())
        self._environment = {**os.environ, **environment(settings), **(secrets or {})}
        self._report = report
        self._stopping = threading.Event()
        self._started = threading.Event()
        self._reporting = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._name: str | None = None
        self._error: str | None = None  # the worker's own message about why it cannot continue
        self._last_line = ""
        self._thread = threading.Thread(target=self._supervise, name="spark-worker", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the worker, and kill it if it does not stop."""
        self._stopping.set()
        child = self._child
        if child is not None and child.poll() is None:
            child.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(STOP_S)
            if child.poll() is None:
                child.kill()
        self._thread.join(5)

    def _supervise(self) -> None:
        delay_s = 1.0
        while self._wait_for_parts():
            started_s = time.monotonic()
            self._started.clear()
            self._report(None, STARTING)
            exit_code = self._run()
            self._end_start()
            if self._stopping.is_set():
                return
            is_stable = time.monotonic() - started_s > STABLE_S
            delay_s = 1.0 if is_stable else min(delay_s * 2, RESTART_DELAY_S_MAX)
            reason = f"not running: {self._error or _ended(exit_code, self._last_line)}"
            _log.error("Spark worker %s", reason, extra={"exit_code": exit_code, "restart_in_s": delay_s})
            self._pause(f"{reason} (it is started again in {delay_s:.0f} s)", delay_s)

    def _wait_for_parts(self) -> bool:
        """Wait until nothing is missing; False once the server stops."""
        logged = None
        while not self._stopping.is_set() and (lacking := missing()) is not None:
            reason = f"not running: {lacking}"
            if reason != logged:
                _log.error("Spark worker %s; changes are accepted and kept meanwhile", reason)
                logged = reason
            self._pause(reason, REPEAT_S)
        return not self._stopping.is_set()

    def _pause(self, reason: str, duration_s: float) -> None:
        until_s = time.monotonic() + duration_s
        while not self._stopping.is_set() and (left_s := until_s - time.monotonic()) > 0:
            self._report(self._name, reason)
            self._stopping.wait(min(left_s, REPEAT_S))

    def _run(self) -> int:
        self._error, self._last_line = None, ""
        with subprocess.Popen(  # noqa: S603 - our own interpreter, with our own module
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._environment,
            start_new_session=True,  # a Ctrl-C in the terminal is for the server, which stops the worker
        ) as child:
            self._child = child
            if self._stopping.is_set():  # `stop` may have come before there was a child
                child.terminate()
            threading.Thread(target=self._repeat_start, name="spark-worker-start", daemon=True).start()
            assert child.stdout is not None
            for line in child.stdout:
                self._log_line(line.decode(errors="replace").rstrip())
            return child.wait()

    def _repeat_start(self) -> None:
        while not self._started.wait(REPEAT_S):
            with self._reporting:
                if not self._started.is_set():
                    self._report(None, STARTING)

    def _end_start(self) -> None:
        """Stop reporting the worker as starting."""
        with self._reporting:
            self._started.set()

    def _log_line(self, line: str) -> None:
        """A line of the worker or of its Java process becomes a line of the server's log."""
        try:
            report: Any = orjson.loads(line)
        except orjson.JSONDecodeError:
            report = None
        if isinstance(report, dict):
            self._log_event(report)
        elif found := _SPARK_LINE.match(line):
            level, where, message = found.groups()
            _log.log(_SPARK_LEVELS.get(level, logging.DEBUG), "Spark: %s", message, extra={"class": where})
        elif line:
            self._last_line = line.strip()[:300]
            _log.debug("Spark: %s", line[:2000])

    def _log_event(self, report: dict[str, Any]) -> None:
        event = str(report.pop("event", "said"))
        self._name = report.get("worker", self._name)
        if event in ENDING:
            self._error = report.get("error")
        if event == "ready":
            self._end_start()
            self._report(self._name, None)
        if event == "landed" and isinstance(report.get("tables"), dict):
            report = {**report, "tables": list(report["tables"])}
            report.pop("stages", None)  # `GET /lake/v1/WAREHOUSE/jobs` has them
        fields = {
            f"worker_{name}" if name in _RECORD_FIELDS else name: value for name, value in report.items()
        }
        _log.log(
            logging.WARNING if "error" in report else logging.INFO, "Spark worker: %s", event, extra=fields
        )


def _ended(exit_code: int, last_line: str) -> str:
    how = f"exit code {exit_code}" if exit_code >= 0 else signal.Signals(-exit_code).name
    return f"it ended with {how}" + (f" after the line {last_line!r}" if last_line else "")
