"""Calve as a user runs it, server and Spark worker, and what it tells about its jobs.

The worker is `calve worker`, so whatever module that starts is what is measured.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from bench.catalog.client import Connection
from bench.ingest import events
from bench.ingest.options import COMPONENTS, Options
from bench.ingest.report import median_of
from bench.rivals.server import Server
from tests.harness import components
from tests.harness.process import Child
from tests.harness.s3 import S3Access
from tests.harness.server import environment
from tests.harness.stacks import Stack, Stacks

WORKER_START_S = 300.0
LAND_S = 900.0
STALLED_S = 60.0
MASTER, MEMORY = "local[2]", "2g"
SETTINGS = {"CALVE_BUFFER_BYTES_MAX": str(8 * 2**30)}
PRELOAD_BATCH = 5_000
SPARK_PLACE = {
    "CALVE_JARS": os.environ.get("CALVE_JARS", str(components.JARS)),
    "SPARK_LOCAL_IP": "127.0.0.1",
}


@dataclass(frozen=True, slots=True)
class Job:
    """One batch that was published, and how long each of its stages took."""

    finished_ms: int
    whole_ms: float  # from the cut to its visibility
    stages_ms: dict[str, float] = field(default_factory=dict)
    table_ms: dict[str, float] = field(default_factory=dict)  # of one table in the stage `write`, median


class Pipeline:
    """A running server with a worker. For one thread."""

    def __init__(self, stack: Stack, worker: Child) -> None:
        self.port = stack.server.port
        self.url = stack.url
        self.s3: S3Access | None = stack.s3
        self.server = Server("calve", self.port, "main", stack.server.pid, 0.0, 0.0)
        self.spark = Server("spark", 0, "", worker.pid, 0.0, 0.0)
        self._worker_log = worker.log

    def connection(self, source: str) -> Connection:
        return Connection(self.port, {"X-Source-Id": source})

    def post(self, connection: Connection, changes: Iterable[events.Event]) -> str:
        """The token of the answer."""
        return posted(connection, events.body(changes))

    def preload(self, tables: Sequence[str], keys: int, key_of: events.KeyOf = events.integer_key) -> None:
        """Each table gets the rows 0 to `keys`, and is there when this returns."""
        token = ""
        for table in tables:
            with self.connection(f"preload-{table}") as connection:
                for first in range(0, keys, PRELOAD_BATCH):
                    count = min(PRELOAD_BATCH, keys - first)
                    token = self.post(connection, events.inserts(table, first, count, key_of=key_of))
        self.wait_until_visible(token)

    def wait_until_visible(self, token: str) -> None:
        began, well = time.monotonic(), time.monotonic()
        with self.connection("watch") as connection:
            while not is_visible(connection, token, wait_s=10):
                standing = self.standing()
                well = well if standing["stalled"] else time.monotonic()
                if time.monotonic() > min(began + LAND_S, well + STALLED_S):
                    raise TimeoutError(f"{token} does not become visible: {standing}")

    def standing(self) -> Any:
        with self.connection("watch") as connection:
            return connection.send("GET", "/status").expect(200).json()["landing"]

    def jobs(self, since_ms: int) -> list[Job]:
        """Those that were published since then."""
        with self.connection("watch") as connection:
            listed = connection.send("GET", "/lake/v1/main/jobs?limit=1000").expect(200).json()["jobs"]
        said = self._said()
        return [
            _job(row, said.get(row["id"], {}))
            for row in listed
            if row["state"] == "done" and row["finished-ms"] >= since_ms
        ]

    def _said(self) -> dict[str, dict[str, Any]]:
        """What the worker said about each job, by the job's id."""
        found = {}
        for line in self._worker_log.read_text(errors="replace").splitlines():
            if line.startswith('{"event": "landed"'):
                facts = json.loads(line)
                found[str(facts["job"])] = facts
        return found


@contextlib.contextmanager
def pipeline(folder: Path, options: Options, settings: Mapping[str, str] | None = None) -> Iterator[Pipeline]:
    """Ended by their ids at the end of the block, the worker first."""
    given = {**SETTINGS, "CALVE_WORKERS": str(options.workers), **(settings or {})}
    with contextlib.ExitStack() as running:
        stacks = Stacks(folder / "components", running)
        stack = running.enter_context(stacks.started(COMPONENTS[options.stack], folder, given))
        spark = {"CALVE_SPARK_MASTER": MASTER, "CALVE_SPARK_MEMORY": MEMORY, **SPARK_PLACE}
        spark |= stack.s3.settings if stack.s3 else {}
        child = Child(
            worker_command(stack.url),
            log=folder / "worker.log",
            environment=environment(spark),
            folder=folder,
        )
        child.start(lambda: b'"event": "ready"' in child.log.read_bytes(), timeout_s=WORKER_START_S)
        try:
            yield Pipeline(stack, child)
        finally:
            child.stop(timeout_s=40)


def worker_command(url: str) -> list[str]:
    return [str(components.calve()), "worker", "--uri", url]


def posted(connection: Connection, body: bytes) -> str:
    answer: dict[str, Any] = orjson.loads(connection.send("POST", "/cdc", body).expect(202).body)
    if answer["eventsAccepted"] != answer["eventsReceived"]:
        raise ValueError(f"not all was taken: {answer}")
    return str(answer["token"])


def is_visible(connection: Connection, token: str, *, wait_s: float = 0) -> bool:
    path = f"/lake/v1/main/landed?token={token}&wait-s={wait_s:g}"
    return bool(connection.send("GET", path).expect(200).json()["visible"])


def _job(row: dict[str, Any], said: dict[str, Any]) -> Job:
    """Staging is what is left of a job when the worker's own stages are taken off."""
    facts = {**row["progress"], **said}
    told = (
        said.get("stages")
        or facts.get("stages-ms")
        or {name: value for name, value in facts.items() if name.endswith("-ms")}
    )
    stages = {
        name.removesuffix("-ms"): float(value)
        for name, value in told.items()
        if isinstance(value, int | float)
    }
    whole_ms = float(row["finished-ms"] - row["created-ms"])
    staging_ms = max(0.0, whole_ms - sum(stages.values()))
    return Job(row["finished-ms"], whole_ms, {"staging": staging_ms, **stages}, _of_tables(facts))


def _of_tables(facts: dict[str, Any]) -> dict[str, float]:
    """What the worker did for one table, side by side with others; empty if it does not say."""
    tables = facts.get("tables")
    if not isinstance(tables, dict):
        return {}
    told = [
        {name.removesuffix("-ms"): float(value) for name, value in table.items() if name.endswith("-ms")}
        for table in tables.values()
    ]
    return median_of(told)
