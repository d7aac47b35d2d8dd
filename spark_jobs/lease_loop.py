"""The main loop of a worker: lease a job, run it, report the result, in several slots; and send heartbeats.

The worker has no state that must survive. If it is killed, it leaves files that belong to no table and a
lease that expires; the next worker processes the batch again.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_jobs.driver import has_ended, is_alive
from spark_jobs.landing.landing_job import LandingJob
from spark_jobs.maintenance import steps as maintenance
from spark_jobs.messages import BadJob, Job, KeyFileSettings, OneTableJob, job_from, parsed
from spark_jobs.progress import Progress
from spark_jobs.rewrite import convert
from spark_jobs.server_client import TRANSACTION_TTL_S, LostLease, Server, ServerError
from spark_jobs.slot_session import SlotSession, Stores
from spark_jobs.tables.table_state import TableStates
from spark_jobs.verification import verify

LEASE_WAIT_S = 5.0
STOP_S = 20.0
HEARTBEATS_PER_LEASE = 3
LOOK_EVERY_S = 0.25
WARM_UP_AFTER_S = 5.0  # batches that already wait go first
TABLES_AT_ONCE = 4
SPARK_DIED = 70
_ERROR_CHARS_MAX = 2000

_line = threading.Lock()


def log_event(event: str, **facts: Any) -> None:
    """Write one line of JSON to standard output."""
    with _line, contextlib.suppress(BrokenPipeError):
        sys.stdout.write(json.dumps({"event": event, **facts}, default=str) + "\n")
        sys.stdout.flush()


@dataclass(slots=True)
class _Running:
    job: Job
    progress: Progress = field(default_factory=Progress)
    beaten_s: float = field(default_factory=time.monotonic)
    extended_s: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class _Kind:
    """How a slot runs one kind of job on one table."""

    message: type[OneTableJob]
    run: Callable[[Any, Progress], dict[str, Any]]  # returns facts about the job
    event: str  # in the log, when the job is done
    logged: tuple[str, ...] | None = None  # facts in the log; None: all of them
    publishes: bool = False  # `run` publishes, which ends the job
    reports_errors: bool = False  # an error is a result that the server stores


def _kinds(server: Server, session: SlotSession) -> dict[str, _Kind]:
    step = maintenance.MaintenanceStep(server, session)
    verification = verify.Verification(server, session)
    conversion = convert.ConversionStep(server, session)
    logged = ("number", "rows", "buckets-differing", "ms")
    return {
        maintenance.KIND: _Kind(maintenance.MaintenanceJob, lambda job, _: step.run(job), "maintained"),
        verify.KIND: _Kind(
            verify.VerificationJob,
            lambda job, _: verification.run(job),
            "verified",
            logged=logged,
            reports_errors=True,
        ),
        convert.KIND: _Kind(convert.ConversionJob, conversion.run, "converted", publishes=True),
    }


class Worker:
    """Runs the slots of a worker. `gone` returns whether the process that started the worker has ended."""

    def __init__(
        self,
        server: Server,
        spark: SparkSession,
        stores: Stores,
        name: str,
        *,
        slots: int,
        about: dict[str, Any],
        key_files: KeyFileSettings | None = None,
        gone: Callable[[], bool] = lambda: False,
    ) -> None:
        self._server = server
        self._spark = spark
        self._stores = stores
        self._name = name
        self._slots = slots
        self._about = about
        self._gone = gone
        self._stopping = threading.Event()
        self._running: dict[int, _Running] = {}
        self._key_files = key_files or KeyFileSettings()
        self._states = TableStates()
        self._pool = ThreadPoolExecutor(TABLES_AT_ONCE * slots, "table")
        self._exit_code = 0
        self._is_warm = threading.Event()

    def stop(self) -> None:
        """Lease no more jobs; running jobs may finish. Safe from any thread and from a signal handler."""
        self._stopping.set()

    def run(self) -> int:
        """Run until a stop is requested or Spark dies. Returns the exit code."""
        threads = [
            threading.Thread(target=self._serve, args=(slot,), name=f"slot-{slot}", daemon=True)
            for slot in range(self._slots)
        ]
        threading.Thread(target=self._keep_leases, name="heartbeat", daemon=True).start()
        threading.Thread(target=self._warm_up, name="warm-up", daemon=True).start()
        for thread in threads:
            thread.start()
        while not self._stopping.wait(LOOK_EVERY_S):
            if has_ended(self._spark):
                self._die("the Java process of Spark ended")
            elif self._gone():
                log_event("stopping", reason="the process that started this worker is gone")
                return self._exit_code
        until_s = time.monotonic() + STOP_S
        for thread in threads:
            thread.join(max(0.0, until_s - time.monotonic()) if not self._exit_code else 0.1)
        self._abandon()
        return self._exit_code

    # -- one slot

    def _warm_up(self) -> None:
        """Prepare for maintenance while the first batches land. Until then no maintenance job is leased."""
        if "maintenance" in self._about and not self._stopping.wait(WARM_UP_AFTER_S):
            try:
                maintenance.warm_up(self._spark)
            except (PySparkException, Py4JError, OSError) as error:
                log_event(
                    "warm-up-failed", error=error_text(error)
                )  # a maintenance job reports it again, with its table
            self._is_warm.set()

    def _serve(self, slot: int) -> None:
        # Each slot's Spark jobs get an equal share of the cores.
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", f"slot-{slot}")
        session = SlotSession(self._spark, self._server, self._stores, self._name, slot)
        landing = LandingJob(self._server, session, self._pool, self._states, self._key_files)
        kinds = _kinds(self._server, session)
        without = {name: value for name, value in self._about.items() if name != "maintenance"}
        # Maintenance and rebuilds use one slot only, so that the others are free for batches.
        is_first = slot == 0 or self._about.get("maintenance") == "only"
        silent_s = 0.0
        while not self._stopping.is_set():
            about = self._about if is_first and self._is_warm.is_set() else without
            about = about | {"rebuilds": True} if is_first else about
            try:
                given = self._server.lease(self._name, slot, LEASE_WAIT_S, about)
            except ServerError as error:
                if not silent_s:
                    log_event("no-answer", error=str(error))
                silent_s = min(max(0.5, silent_s * 2), 5.0)
                self._stopping.wait(silent_s)
                continue
            silent_s = 0.0
            if given is None:
                continue
            kind = kinds.get(str(given.get("kind")))
            if kind is None:
                self._land(slot, landing, given)
            else:
                self._run_on_table(slot, kind, given)

    def _land(self, slot: int, landing: LandingJob, given: Any) -> None:
        try:
            job = job_from(given)
        except BadJob as error:
            self._give_back(given, error)
            return
        running = self._running[slot] = _Running(job)
        started_s = time.monotonic()
        try:
            outcome = landing.run(job, running.progress)
            log_event(
                "landed",
                job=job.id,
                number=outcome.number,
                ms=round((time.monotonic() - started_s) * 1000),
                tries=outcome.tries,
                stages=outcome.stages,
                tables=outcome.tables,
            )
        except LostLease as error:
            log_event("lost", job=job.id, error=str(error))
        except Exception as error:  # noqa: BLE001 - after any error the job is given back and the worker goes on
            with self._failed(job, error) as message:
                self._server.fail(job.id, job.epoch, message, retry=not isinstance(error, BadJob))
                landing.discard()
        finally:
            self._running.pop(slot, None)

    def _run_on_table(self, slot: int, kind: _Kind, given: Any) -> None:
        """Run a job that lands no batch. After a failure the server creates another one later."""
        try:
            job = parsed(kind.message, given)
        except BadJob as error:
            self._give_back(given, error)
            return
        running = self._running[slot] = _Running(job.lease)
        try:
            facts = kind.run(job, running.progress)
            if not kind.publishes:
                self._server.complete(running.job, facts)
            logged = facts if kind.logged is None else {name: facts[name] for name in kind.logged}
            log_event(kind.event, job=job.id, table=job.label, **logged)
        except LostLease as error:
            log_event("lost", job=job.id, error=str(error))
        except Exception as error:  # noqa: BLE001 - as above
            with self._failed(running.job, error, table=job.label) as message:
                if kind.reports_errors:
                    self._server.complete(running.job, {"error": message})
                else:
                    self._server.fail(job.id, job.epoch, message, retry=False)
        finally:
            self._running.pop(slot, None)

    def _give_back(self, given: Any, error: BadJob) -> None:
        """Report to the server that the description of a job is wrong, and why."""
        log_event("failed", job=str(given.get("id")), error=str(error))
        with contextlib.suppress(ServerError, KeyError):  # a lease that is not given back expires
            self._server.fail(str(given["id"]), int(given["epoch"]), str(error), retry=False)

    @contextlib.contextmanager
    def _failed(self, job: Job, error: Exception, **facts: Any) -> Iterator[str]:
        """Log a failure, let the caller report the message to the server, and stop if Spark has died."""
        message = error_text(error)
        log_event("failed", job=job.id, **facts, error=message)
        with contextlib.suppress(ServerError):  # a lease that is not ended expires
            yield message
        if isinstance(error, Py4JNetworkError) or not is_alive(self._spark):
            self._die(message)

    def _die(self, reason: str) -> None:
        if not self._exit_code:
            self._exit_code = SPARK_DIED
            log_event("spark-died", error=reason)
        self.stop()

    # -- leases

    def _keep_leases(self) -> None:
        while True:
            for running in list(self._running.values()):
                self._keep(running)
            time.sleep(LOOK_EVERY_S)

    def _keep(self, running: _Running) -> None:
        now_s = time.monotonic()
        if now_s - running.beaten_s < running.job.lease_s / HEARTBEATS_PER_LEASE:
            return
        running.beaten_s = now_s
        try:
            self._server.heartbeat(running.job, running.progress.facts())
            transaction = running.progress.transaction
            if transaction is not None and now_s - running.extended_s > TRANSACTION_TTL_S / 4:
                running.extended_s = now_s
                self._server.extend_transaction(running.job.warehouse, transaction)
        except LostLease as error:
            running.progress.lose(str(error))
        except ServerError as error:
            log_event("no-answer", job=running.job.id, error=str(error))  # the next heartbeat is due soon

    def _abandon(self) -> None:
        """Give back the jobs that did not finish in time; best effort."""
        for running in list(self._running.values()):
            log_event("abandoned", job=running.job.id)
            with contextlib.suppress(ServerError):
                if running.progress.transaction is not None:
                    self._server.abort_transaction(running.job.warehouse, running.progress.transaction)
                self._server.fail(running.job.id, running.job.epoch, "the worker stopped", retry=True)


def error_text(error: BaseException) -> str:
    """Return the message of an error and its last cause, without the stack trace of the JVM."""
    message, _, where = f"{type(error).__name__}: {error}".partition("\n\tat ")
    causes = [line for line in where.splitlines() if line.startswith("Caused by: ")]
    return "\n".join([message, *causes[-1:]])[:_ERROR_CHARS_MAX]
