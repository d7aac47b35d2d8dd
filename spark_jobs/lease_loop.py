"""The loop of a worker: lease, land, say so, in as many slots as it has; heartbeats beside them.

It holds nothing that matters. Killed at any moment, it leaves files that no table has and a lease that runs
out, and the next worker does the batch again.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_jobs import convert, maintenance, verify
from spark_jobs.driver import has_ended, is_alive
from spark_jobs.landing_job import LandingJob, Progress
from spark_jobs.messages import BadJob, Job, KeyFileSettings, job_from, parsed
from spark_jobs.server_client import TRANSACTION_TTL_S, LostLease, Server, ServerError
from spark_jobs.slot_session import SlotSession, Stores
from spark_jobs.table_state import TableStates

LEASE_WAIT_S = 5.0
STOP_S = 20.0
HEARTBEATS_PER_LEASE = 3
LOOK_EVERY_S = 0.25
WARM_UP_AFTER_S = 5.0  # batches that wait already come first
TABLES_AT_ONCE = 4
SPARK_DIED = 70
_WORDS_MAX = 2000

_line = threading.Lock()


def say(event: str, **facts: Any) -> None:
    """One line of JSON for the operator of the worker."""
    with _line, contextlib.suppress(BrokenPipeError):
        sys.stdout.write(json.dumps({"event": event, **facts}, default=str) + "\n")
        sys.stdout.flush()


@dataclass(slots=True)
class _Running:
    job: Job
    progress: Progress = field(default_factory=Progress)
    beaten_s: float = field(default_factory=time.monotonic)
    extended_s: float = field(default_factory=time.monotonic)


class Worker:
    """`gone` is called now and then. Once it returns true, the server has ended, and so does the worker."""

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
        """Lease nothing more; what runs may finish. From any thread, and from a signal handler."""
        self._stopping.set()

    def run(self) -> int:
        """Run until a stop is requested or Spark dies. The exit code."""
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
                say("stopping", reason="the process that started this worker is gone")
                return self._exit_code
        until_s = time.monotonic() + STOP_S
        for thread in threads:
            thread.join(max(0.0, until_s - time.monotonic()) if not self._exit_code else 0.1)
        self._abandon()
        return self._exit_code

    # -- one slot

    def _warm_up(self) -> None:
        """Prepare for maintenance beside the first batches. Until then none is leased."""
        if "maintenance" in self._about and not self._stopping.wait(WARM_UP_AFTER_S):
            try:
                maintenance.warm_up(self._spark)
            except (PySparkException, Py4JError, OSError) as error:
                say("warm-up-failed", error=_words(error))  # a real step says the same, with its table
            self._is_warm.set()

    def _serve(self, slot: int) -> None:
        # Each slot's Spark jobs get an equal share of the cores.
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", f"slot-{slot}")
        session = SlotSession(self._spark, self._server, self._stores, self._name, slot)
        landing = LandingJob(self._server, session, self._pool, self._states, self._key_files)
        step = maintenance.MaintenanceStep(self._server, session)
        verification = verify.Verification(self._server, session)
        conversion = convert.ConversionStep(self._server, session)
        without = {name: value for name, value in self._about.items() if name != "maintenance"}
        # Maintenance and rebuilds have one slot, so that batches always find another.
        is_first = slot == 0 or self._about.get("maintenance") == "only"
        silent_s = 0.0
        while not self._stopping.is_set():
            about = self._about if is_first and self._is_warm.is_set() else without
            about = about | {"rebuilds": True} if is_first else about
            try:
                given = self._server.lease(self._name, slot, LEASE_WAIT_S, about)
            except ServerError as error:
                if not silent_s:
                    say("no-answer", error=str(error))
                silent_s = min(max(0.5, silent_s * 2), 5.0)
                self._stopping.wait(silent_s)
                continue
            silent_s = 0.0
            if given is not None and given.get("kind") == maintenance.KIND:
                self._maintain(slot, step, given)
            elif given is not None and given.get("kind") == verify.KIND:
                self._verify(slot, verification, given)
            elif given is not None and given.get("kind") == convert.KIND:
                self._convert(slot, conversion, given)
            elif given is not None:
                self._do(slot, landing, given)

    def _do(self, slot: int, landing: LandingJob, given: Any) -> None:
        try:
            job = job_from(given)
        except BadJob as error:
            self._give_back(given, error)
            return
        running = self._running[slot] = _Running(job)
        started_s = time.monotonic()
        try:
            outcome = landing.run(job, running.progress)
            say(
                "landed",
                job=job.id,
                number=outcome.number,
                ms=round((time.monotonic() - started_s) * 1000),
                tries=outcome.tries,
                stages=outcome.stages,
                tables=outcome.tables,
            )
        except LostLease as error:
            say("lost", job=job.id, error=str(error))
        except Exception as error:  # noqa: BLE001 - after any error the job is given back and the worker goes on
            self._failed(job, error, landing)
        finally:
            self._running.pop(slot, None)

    def _maintain(self, slot: int, step: maintenance.MaintenanceStep, given: Any) -> None:
        """A step of maintenance. After a failure the table is free again at once."""
        try:
            job = parsed(maintenance.MaintenanceJob, given)
        except BadJob as error:
            self._give_back(given, error)
            return
        running = self._running[slot] = _Running(job.lease)
        try:
            facts = step.run(job)
            self._server.complete(running.job, facts)
            say("maintained", job=job.id, table=job.label, **facts)
        except LostLease as error:
            say("lost", job=job.id, error=str(error))
        except Exception as error:  # noqa: BLE001 - as above; the table is tried again later
            self._failed(running.job, error, None)
        finally:
            self._running.pop(slot, None)

    def _verify(self, slot: int, verification: verify.Verification, given: Any) -> None:
        """Verify a mirror and send the result. After a failure the server tries the table again later."""
        try:
            job = parsed(verify.VerificationJob, given)
        except BadJob as error:
            self._give_back(given, error)
            return
        running = self._running[slot] = _Running(job.lease)
        try:
            facts = verification.run(job)
            self._server.complete(running.job, facts)
            shown = {name: facts[name] for name in ("rows", "buckets-differing", "ms")}
            say("verified", job=job.id, table=job.label, number=job.number, **shown)
        except LostLease as error:
            say("lost", job=job.id, error=str(error))
        except Exception as error:  # noqa: BLE001 - as above
            words = _words(error)
            say("failed", job=job.id, table=job.label, error=words)
            with contextlib.suppress(ServerError):  # a lease that is not ended runs out
                self._server.complete(running.job, {"error": words})
            if isinstance(error, Py4JNetworkError) or not is_alive(self._spark):
                self._die(words)
        finally:
            self._running.pop(slot, None)

    def _convert(self, slot: int, step: convert.ConversionStep, given: Any) -> None:
        """Convert columns of a table. After a failure the server tries the table again later."""
        try:
            job = parsed(convert.ConversionJob, given)
        except BadJob as error:
            self._give_back(given, error)
            return
        running = self._running[slot] = _Running(job.lease)
        try:
            say("converted", job=job.id, table=job.label, **step.run(job, running.progress))
        except LostLease as error:
            say("lost", job=job.id, error=str(error))
        except Exception as error:  # noqa: BLE001 - as above
            self._failed(running.job, error, None)
        finally:
            self._running.pop(slot, None)

    def _give_back(self, given: Any, error: BadJob) -> None:
        """Tell the server that the description of a job is wrong, and why."""
        say("failed", job=str(given.get("id")), error=str(error))
        with contextlib.suppress(ServerError, KeyError):  # a lease that is not given back runs out
            self._server.fail(str(given["id"]), int(given["epoch"]), str(error), retry=False)

    def _failed(self, job: Job, error: Exception, landing: LandingJob | None) -> None:
        """`landing` is None for a job of maintenance, which is not tried again as it is."""
        words = _words(error)
        say("failed", job=job.id, error=words)
        retry = landing is not None and not isinstance(error, BadJob)
        with contextlib.suppress(ServerError):  # a lease that is not given back runs out
            self._server.fail(job.id, job.epoch, words, retry=retry)
            if landing is not None:
                landing.discard()
        if isinstance(error, Py4JNetworkError) or not is_alive(self._spark):
            self._die(words)

    def _die(self, reason: str) -> None:
        if not self._exit_code:
            self._exit_code = SPARK_DIED
            say("spark-died", error=reason)
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
            say("no-answer", job=running.job.id, error=str(error))  # the next beat is due soon

    def _abandon(self) -> None:
        """Give back what did not finish in time; best effort."""
        for running in list(self._running.values()):
            say("abandoned", job=running.job.id)
            with contextlib.suppress(ServerError):
                if running.progress.transaction is not None:
                    self._server.abort_transaction(running.job.warehouse, running.progress.transaction)
                self._server.fail(running.job.id, running.job.epoch, "the worker stopped", retry=True)


def _words(error: BaseException) -> str:
    """What went wrong, without the hundred lines of where in the JVM."""
    message, _, where = f"{type(error).__name__}: {error}".partition("\n\tat ")
    causes = [line for line in where.splitlines() if line.startswith("Caused by: ")]
    return "\n".join([message, *causes[-1:]])[:_WORDS_MAX]
