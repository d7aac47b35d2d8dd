"""Jobs of maintenance for Spark workers: compaction and rewriting of manifests.

A job claims the lane of its table, as a batch does. So it never runs beside a batch of the same table, and it
is leased only if no batch is due. The worker does a step that takes a second or two and completes the job;
if more is left, the table is due again. A commit of another engine in between is a conflict for the worker,
which gives the job up: the table is tried again later.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import orjson
import sqlalchemy as sa

from catalog.names import Identifier, Namespace, WarehouseRef
from catalog.services.catalog import Catalog
from ingest.change import TableName
from ingest.store.jobs import Job, Jobs, finish
from ingest.store.tables import CHANGES_SUFFIX, REJECTS_SUFFIX, LandingTables
from maintenance import measures
from maintenance.health import COMPACT, Health, health, reasons
from maintenance.policies import Policies
from maintenance.store import MaintenanceStore

KIND = "maintain"
LEASE_S = 30.0
LOOK_EVERY_S = 1.0
RETRY_MS = 60_000
STEP_BYTES_MIN, STEP_BYTES_MAX = 2**20, 32 * 2**20  # what one step rewrites
STEP_MS = 1_000  # how long a step should take: batches of the table wait for it
NO_LANDING = orjson.dumps({"commit_us": 0, "files": [], "steps": []})


@dataclass(slots=True)
class StepSize:
    """How many bytes the next step rewrites, by how long the last one took."""

    bytes_max: int = STEP_BYTES_MAX

    def took(self, rewritten_bytes: int, ms: int) -> None:
        """A step that took too long makes the next ones smaller. A quick, full one makes them larger."""
        if ms > 2 * STEP_MS:
            self.bytes_max = max(STEP_BYTES_MIN, min(self.bytes_max, rewritten_bytes) * STEP_MS // ms)
        elif ms <= STEP_MS and 2 * rewritten_bytes >= self.bytes_max:
            self.bytes_max = min(STEP_BYTES_MAX, 2 * self.bytes_max)


@dataclass(slots=True)
class _Seen:
    """Which commits this process has looked at, and the tables that were due then."""

    number: int = 0
    due: dict[tuple[str, str], list[str]] = field(default_factory=dict)


class MaintenanceJobs:
    def __init__(
        self,
        catalog: Catalog,
        store: MaintenanceStore,
        policies: Policies,
        jobs: Jobs,
        tables: LandingTables,
    ) -> None:
        self._catalog = catalog
        self._store = store
        self._policies = policies
        self._jobs = jobs
        self._tables = tables
        self._seen: dict[str, _Seen] = {}
        self._looked_s = 0.0
        self._step = StepSize()
        self._lock = threading.Lock()

    def next_job(self, worker: str, warehouses: Collection[str]) -> dict[str, Any] | None:
        """A job for a table that is due and that no other job has. None if there is none."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            if time.monotonic() - self._looked_s < LOOK_EVERY_S:
                return None
            self._looked_s = time.monotonic()
            for warehouse in warehouses:
                for key, why in self._due(warehouse):
                    job = self._begin(worker, warehouse, key, why)
                    if job is not None:
                        self._looked_s = 0.0
                        return job
        finally:
            self._lock.release()
        return None

    def request(self, warehouse: str, identifier: Identifier, uuid_: str, action: str) -> None:
        """Make a table due for an action. Its health does not matter."""
        self._store.request(warehouse, uuid_, action)
        seen = self._seen.setdefault(warehouse, _Seen())
        seen.due[identifier.namespace.key, identifier.name] = [f"{action} was requested"]

    def complete(self, job: Job, epoch: int, facts: dict[str, Any]) -> None:
        """End a job and record what it did. CommitFailed if this epoch no longer holds it."""
        described: dict[str, Any] = orjson.loads(job.description)
        number = (self._catalog.entries.number(job.warehouse) or (0, 0))[0]

        def work(connection: sa.Connection) -> None:
            finish(connection, job.id, epoch, number, facts)

        self._catalog.database.write(work)
        measures.compacted(facts)
        if "rewritten-bytes" in facts and "ms" in facts:
            self._step.took(int(facts["rewritten-bytes"]), int(facts["ms"]))
        key = (Namespace(tuple(described["namespace"])).key, described["name"])
        found = self._health(job.warehouse, key)
        if found is None:
            return
        table_uuid, now = found
        done = {**facts, "time-ms": self._catalog.now_ms(), "number": number, "why": described["why"]}
        files_after = int(facts.get("files-after", now.data_files))
        # A step that found nothing to do is not repeated at once.
        retry_ms = 0 if facts.get("rewritten-data-files") else self._catalog.now_ms() + RETRY_MS
        action = described["actions"][0]
        self._store.note(
            job.warehouse, table_uuid, action, done, files_after=files_after, retry_after_ms=retry_ms
        )

    # -- what is due

    def _due(self, warehouse: str) -> list[tuple[tuple[str, str], list[str]]]:
        """Tables that are due, those that were written to since the last look included."""
        first = warehouse not in self._seen
        seen = self._seen.setdefault(warehouse, _Seen())
        head = (self._catalog.entries.number(warehouse) or (0, 0))[0]
        if head < seen.number:  # the warehouse was created again
            seen.number, seen.due = 0, {}
        if head > seen.number or first:
            for key in self._catalog.history.tables_between(warehouse, seen.number, head):
                seen.due.setdefault(key, [])
            seen.number = head
        policies, records = self._store.policies(warehouse), self._store.tables(warehouse)
        now_ms, found = self._catalog.now_ms(), []
        for key in list(seen.due):
            known = self._health(warehouse, key)
            if known is None:
                del seen.due[key]
                continue
            table_uuid, state = known
            record = records.get(table_uuid) or self._store.table(warehouse, table_uuid)
            identifier = Identifier(Namespace.from_key(key[0]), key[1])
            why = reasons(state, record, self._policies.effective(policies, identifier))
            if not why:
                del seen.due[key]
            elif record.retry_after_ms <= now_ms:
                found.append((key, why))
        return found

    def _health(self, warehouse: str, key: tuple[str, str]) -> tuple[str, Health] | None:
        state = self._catalog.state(WarehouseRef(warehouse))
        entry = state.load(*key)
        if entry is None or entry.kind != "table" or entry.text is None:
            return None
        metadata = self._catalog.documents.parsed(entry)
        return entry.uuid, health(metadata)

    # -- the job

    def _begin(
        self, worker: str, warehouse: str, key: tuple[str, str], why: list[str]
    ) -> dict[str, Any] | None:
        identifier = Identifier(Namespace.from_key(key[0]), key[1])
        name: TableName = (*identifier.namespace.levels, identifier.name)
        job_id, lane = uuid.uuid4().hex, lane_of(name)
        known = self._health(warehouse, key)
        if known is None or not self._jobs.begin(job_id, warehouse, worker, [lane], LEASE_S):
            return None
        table_uuid = known[0]
        policy = self._policies.of_table(warehouse, identifier)
        record = self._store.table(warehouse, table_uuid)
        described = {
            "id": job_id,
            "kind": KIND,
            "warehouse": warehouse,
            "namespace": list(identifier.namespace.levels),
            "name": identifier.name,
            "actions": sorted(record.requested) or [COMPACT],
            "sort": self._sort_columns(warehouse, name, lane),
            "step-bytes-max": self._step.bytes_max,
            "policy": policy.as_json(),
            "why": why,
            "lease-s": LEASE_S,
        }
        description = orjson.dumps(described)
        if not self._jobs.staged(job_id, 1, description, NO_LANDING, LEASE_S):
            return None
        # If the worker fails, other tables go first for a while.
        attempt = {"time-ms": self._catalog.now_ms(), "job": job_id, "why": why}
        retry_ms = self._catalog.now_ms() + RETRY_MS
        self._store.note(warehouse, table_uuid, "attempt", attempt, retry_after_ms=retry_ms)
        return described | {"epoch": 1}

    def _sort_columns(self, warehouse: str, name: TableName, lane: TableName) -> list[str]:
        """Mirrors are sorted by their key, changes by time; other tables keep their order."""
        settings = self._tables.one(warehouse, lane)
        if settings.number is None:
            return []
        if name[-1] != lane[-1]:
            return [settings.settings.names["commit-timestamp"]]
        return []  # by the identifier fields of the table, which the worker knows


def lane_of(name: TableName) -> TableName:
    """The lane of a table: that of the mirror for its changes and rejects."""
    for suffix in (CHANGES_SUFFIX, REJECTS_SUFFIX):
        if name[-1].endswith(suffix):
            return (*name[:-1], name[-1].removesuffix(suffix))
    return name
