"""The worker: one warm Spark driver that asks the server for batches and lands them.

    python -m spark_jobs.worker --uri http://127.0.0.1:8181

It holds nothing that matters. Killed at any moment, it leaves an open transaction that nobody sees and a lease
that runs out; the next worker does the batch again. Its name is new at each start, so a worker that was only
thought dead never shares a transaction with its successor. One JSON line on stdout for each thing of note;
Spark's own words go to stderr, from warnings up.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import threading
import time
import traceback
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_jobs.first.commit_batch import Lane, commit_batch
from spark_jobs.first.job import Job
from spark_jobs.first.server import LostLease, Refused, Server, ServerGone
from spark_jobs.jars import JarsMissing
from spark_jobs.session import S3Options, SparkUnavailable, attach, spark_session

WAIT_S = 10.0
STOP_S = 20.0
HEARTBEATS_PER_LEASE = 4
THREADS_PER_SLOT = 4
SPARK_DIED = 70
NOT_POSSIBLE = 78
LOG4J = Path(__file__).with_name("log4j2.properties")


def say(event: str, **facts: Any) -> None:
    """One line for whoever looks after the worker."""
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps({"event": event, **facts}), flush=True)  # noqa: T201


class Worker:
    def __init__(self, server: Server, spark: SparkSession, name: str, options: argparse.Namespace) -> None:
        self._server = server
        self._spark = spark
        self._name = name
        self._options = options
        self._s3 = s3_options()
        self._stopping = threading.Event()
        self._running: dict[int, tuple[Job, dict[str, Any]]] = {}
        self.exit_code = 0

    def run(self) -> int:
        """Until told to stop. The exit code."""
        slots = [
            threading.Thread(target=self._serve, args=(slot,), name=f"slot-{slot}", daemon=True)
            for slot in range(self._options.slots)
        ]
        threading.Thread(target=self._keep_alive, name="heartbeat", daemon=True).start()
        for slot in slots:
            slot.start()
        while not self._stopping.wait(0.5):
            if self._options.parent_pid and os.getppid() != self._options.parent_pid:
                say("stopping", reason="the server is gone")
                self.stop()
        until_s = time.monotonic() + STOP_S
        for slot in slots:
            slot.join(max(0.1, until_s - time.monotonic()))
        return self.exit_code

    def stop(self) -> None:
        self._stopping.set()

    # -- one slot

    def _serve(self, slot: int) -> None:
        lane = self._lane(slot)
        while not self._stopping.is_set():
            try:
                about = {"slots": self._options.slots, "master": self._options.master}
                job = self._server.lease(self._name, slot, WAIT_S, about)
            except (ServerGone, Refused) as error:
                say("no answer", error=str(error)[:300])
                self._stopping.wait(1.0)
                continue
            if job is not None:
                self._do(lane, job)

    def _lane(self, slot: int) -> Lane:
        spark = self._spark.newSession()
        transaction = f"{self._name}-{slot}"
        known: dict[str, str] = {}

        def catalog_of(warehouse: str) -> str:
            """Built once for each warehouse: the transaction's name stays the same from job to job."""
            if warehouse not in known:
                name = f"calve_{slot}_{len(known)}"
                token = self._server.bearer()
                where = f"{warehouse}~{transaction}"
                credential = self._server.credential
                attach(
                    spark,
                    name,
                    self._server.uri,
                    warehouse=where,
                    token=None if credential else token,
                    credential=credential,
                    s3=self._s3,
                )
                known[warehouse] = name
            return known[warehouse]

        threads = ThreadPoolExecutor(THREADS_PER_SLOT, thread_name_prefix=f"write-{slot}")
        return Lane(self._server, spark, slot, transaction, catalog_of, self._s3, threads)

    def _do(self, lane: Lane, job: Job) -> None:
        progress: dict[str, Any] = {"stage": "prepare", "done": 0, "of": len(job.tables)}
        self._running[lane.slot] = (job, progress)
        began_s = time.monotonic()
        try:
            number, metrics = commit_batch(
                lane, job, lambda stage, table, done, of: progress.update(stage=stage, done=done, of=of)
            )
            took_ms = round((time.monotonic() - began_s) * 1000)
            say("landed", job=job.id, number=number, took_ms=took_ms, **metrics)
        except LostLease as error:
            say("lost", job=job.id, error=str(error)[:300])
            self._give_up(lane, job, None)
        except Exception as error:  # noqa: BLE001 - whatever it was, the job goes back and the worker goes on
            say("failed", job=job.id, error=_short(error))
            traceback.print_exc()
            self._give_up(lane, job, _short(error))
            if isinstance(error, Py4JNetworkError) or not self._is_alive():
                say("spark died", error=_short(error))
                self.exit_code = SPARK_DIED
                self.stop()
        finally:
            self._running.pop(lane.slot, None)

    def _give_up(self, lane: Lane, job: Job, error: str | None) -> None:
        """Best effort: a lease that is not given back runs out."""
        with contextlib.suppress(ServerGone, Refused):
            lane.server.abort(job.warehouse, lane.transaction)
            if error is not None:
                lane.server.fail(job, error)

    def _is_alive(self) -> bool:
        try:
            return not self._spark.sparkContext._jsc.sc().isStopped()  # noqa: SLF001 - Spark has no other way
        except (Py4JError, OSError):
            return False

    def _keep_alive(self) -> None:
        while not self._stopping.is_set() or self._running:
            leases = [job.lease_s for job, _ in list(self._running.values())]
            for job, progress in list(self._running.values()):
                with contextlib.suppress(ServerGone, Refused, LostLease):
                    self._server.keep(job, dict(progress))
            self._stopping.wait(min(leases, default=8.0) / HEARTBEATS_PER_LEASE)


def s3_options() -> S3Options | None:
    """How the store is reached, from the environment that the server's settings share."""
    endpoint, region = os.environ.get("CALVE_S3_ENDPOINT"), os.environ.get("CALVE_S3_REGION")
    access, secret = os.environ.get("CALVE_S3_ACCESS_KEY_ID"), os.environ.get("CALVE_S3_SECRET_ACCESS_KEY")
    if endpoint is None and access is None:
        return None
    return S3Options(endpoint, region or "us-east-1", access, secret, path_style=endpoint is not None)


def _short(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, PySparkException):
        text = text.split("\n\tat ", 1)[0]
    return text[:2000]


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="calve worker", description=__doc__)
    parser.add_argument("--uri", required=True)
    parser.add_argument("--master", default="local[*]")
    parser.add_argument("--memory", default="1g")
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--name", default="w")
    parser.add_argument("--parent-pid", type=int, default=0)
    return parser.parse_args()


def main() -> int:
    options = _parsed()
    name = f"{options.name}-{uuid.uuid4().hex[:8]}"
    token, credential = os.environ.get("CALVE_WORKER_TOKEN"), os.environ.get("CALVE_WORKER_CREDENTIAL")
    server = Server(options.uri, token=token, credential=credential)
    began_s = time.monotonic()
    say("starting", worker=name, master=options.master)
    try:
        spark = _spark(options)
    except (SparkUnavailable, JarsMissing) as error:
        say("not possible", error=str(error))
        print(error, file=sys.stderr)  # noqa: T201
        return NOT_POSSIBLE
    worker = Worker(server, spark, name, options)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: worker.stop())
    say("ready", worker=name, took_ms=round((time.monotonic() - began_s) * 1000))
    code = worker.run()
    say("stopped", worker=name)
    sys.stdout.flush()
    os._exit(code)  # a JVM that hangs must not keep the worker


def _spark(options: argparse.Namespace) -> SparkSession:
    """Spark, started and warm: the first batch should not pay for it."""
    settings = {
        "spark.sql.caseSensitive": "true",
        "spark.scheduler.mode": "FAIR",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.defaultCatalog": "spark_catalog",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOG4J.as_uri()}",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.app.name": "calve-worker",
    }
    spark = spark_session(options.uri, master=options.master, memory=options.memory, extra=settings)
    spark.range(2).selectExpr("id", "id % 2 AS part").groupBy("part").count().collect()
    return spark


if __name__ == "__main__":
    raise SystemExit(main())
