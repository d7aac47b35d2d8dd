"""Jobs of maintenance for Spark workers: compaction, rewriting of manifests, archive.

A job claims the lane of its table, as a batch does. So it never runs beside a batch of the same table, and it
is leased only if no batch is due. The worker does a step that takes a second or two and completes the job;
if more is left, the table is due again. A commit of another engine in between is a conflict for the worker,
which gives the job up: the table is tried again later.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
import sqlalchemy as sa

from catalog.errors import Invalid
from catalog.models import CatalogEntry
from catalog.names import Identifier, Namespace, WarehouseRef
from catalog.services.catalog import Catalog
from ingest.change import TableName
from ingest.identity import current_schema
from ingest.store.jobs import Job, Jobs, finish
from ingest.store.tables import CHANGES_SUFFIX, REJECTS_SUFFIX, LandingTables
from maintenance import archive, measures
from maintenance.archive import ARCHIVE
from maintenance.health import Health, due, health, quiet_ms
from maintenance.policies import Policies, TablePolicy
from maintenance.store import MaintenanceStore, TableRecord

REJECTED_AT = "_rejected_at"  # of a rejects table
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


TableKey = tuple[str, str]  # key of the namespace, name


@dataclass(slots=True)
class _Seen:
    """Which commits this process has looked at, and the tables that may be due since."""

    number: int = 0
    # In the order of their commits; until when each is left alone because its writer is at work.
    tables: dict[TableKey, int] = field(default_factory=dict)
    archive_day: int = 0  # the day, and the policies, for which all changes tables were looked at
    policies: Mapping[TableKey, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Due:
    key: TableKey
    action: str
    why: list[str]


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
        self._found: list[tuple[str, _Due]] = []  # by the last look; their lanes were not free
        self._steps: dict[str, StepSize] = defaultdict(StepSize)  # by action
        self._lock = threading.Lock()

    def next_job(self, worker: str, warehouses: Collection[str]) -> dict[str, Any] | None:
        """A job for a table that is due and that no other job has. None if there is none."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            if time.monotonic() - self._looked_s >= LOOK_EVERY_S:
                self._looked_s = time.monotonic()
                self._found = [(warehouse, one) for warehouse in warehouses for one in self._due(warehouse)]
            return self._first_free(worker, warehouses)
        finally:
            self._lock.release()

    def _first_free(self, worker: str, warehouses: Collection[str]) -> dict[str, Any] | None:
        """A job for the first table whose lane is free. The others wait for the end of a batch: each request
        tries them, because the lane of a table that is written to all the time is free for moments only.
        """
        claimed: dict[str, set[TableName]] = {}
        for warehouse, one in list(self._found):
            if warehouse not in warehouses:
                continue
            if warehouse not in claimed:
                claimed[warehouse] = self._jobs.claimed(warehouse)
            if lane_of((*Namespace.from_key(one.key[0]).levels, one.key[1])) in claimed[warehouse]:
                continue
            self._found.remove((warehouse, one))  # the next look finds it again, if there is more to do
            job = self._begin(worker, warehouse, one)
            if job is not None:
                self._looked_s = 0.0
                return job
        return None

    def request(self, warehouse: str, identifier: Identifier, uuid_: str, action: str) -> None:
        """Make a table due for an action. Its health does not matter. Invalid if it has no archive."""
        if action == ARCHIVE and self.archive_before_ms(warehouse, identifier) is None:
            raise Invalid(
                f"{identifier} has no archive: name a changes table, and set archive-after-days in its policy"
            )
        self._store.request(warehouse, uuid_, action)
        seen = self._seen.setdefault(warehouse, _Seen())
        seen.tables[identifier.namespace.key, identifier.name] = 0

    def archive_before_ms(
        self, warehouse: str, identifier: Identifier, policy: TablePolicy | None = None
    ) -> int | None:
        """The time before which the changes of this table are archived; None if it has no archive."""
        policy = policy or self._policies.of_table(warehouse, identifier)
        until_ms = archive.before_ms(policy, self._catalog.now_ms())
        if until_ms is None or not identifier.name.endswith(CHANGES_SUFFIX):
            return None
        landed = self._tables.one(warehouse, lane_of(identifier.parts))
        return until_ms if landed.number is not None else None

    def complete(self, job: Job, epoch: int, facts: dict[str, Any]) -> None:
        """End a job and record what it did. CommitFailed if this epoch no longer holds it."""
        described: dict[str, Any] = orjson.loads(job.description)
        number = (self._catalog.entries.number(job.warehouse) or (0, 0))[0]

        def work(connection: sa.Connection) -> None:
            finish(connection, job.id, epoch, number, facts)

        self._catalog.database.write(work)
        measures.compacted(facts)
        action = described["actions"][0]
        if "rewritten-bytes" in facts and "ms" in facts:
            self._steps[action].took(int(facts["rewritten-bytes"]), int(facts["ms"]))
        key = (Namespace(tuple(described["namespace"])).key, described["name"])
        entry = self._entry(job.warehouse, key)
        if entry is None:
            return
        done = {**facts, "time-ms": self._catalog.now_ms(), "number": number, "why": described["why"]}
        # A step that found nothing to do is not repeated at once.
        retry_ms = 0 if facts.get("rewritten-data-files") else self._catalog.now_ms() + RETRY_MS
        values = {"retry_after_ms": retry_ms}
        if action == ARCHIVE:
            if not facts.get("files-left"):
                done[archive.THROUGH] = described["archive"]["before-us"] // 1000
        else:
            values["files_after"] = int(facts.get("files-after", health(self._document(entry)).data_files))
        self._store.note(job.warehouse, entry.uuid, action, done, **values)

    # -- what is due

    def _due(self, warehouse: str) -> list[_Due]:
        """Tables that are due, those that were written to since the last look included."""
        first = warehouse not in self._seen
        seen = self._seen.setdefault(warehouse, _Seen())
        head = (self._catalog.entries.number(warehouse) or (0, 0))[0]
        if head < seen.number:  # the warehouse was created again
            seen.number, seen.tables = 0, {}
        if head > seen.number or first:
            changed = self._catalog.history.tables_between(warehouse, seen.number, head)
            seen.tables.update(dict.fromkeys(changed, 0))
            seen.number = head
        policies, records = self._store.policies(warehouse), self._store.tables(warehouse)
        self._look_at_archives(warehouse, seen, policies)
        now_ms, found = self._catalog.now_ms(), []
        for key, idle_ms in list(seen.tables.items()):
            if idle_ms > now_ms:
                continue
            entry = self._entry(warehouse, key)
            if entry is None:
                del seen.tables[key]
                continue
            record = records.get(entry.uuid) or self._store.table(warehouse, entry.uuid)
            identifier = Identifier(Namespace.from_key(key[0]), key[1])
            policy = self._policies.effective(policies, identifier)
            before_ms = self.archive_before_ms(warehouse, identifier, policy)
            state = health(self._document(entry))
            if state.data_files < record.files_after:
                # After a truncate, files are new as soon as there are more than now.
                self._store.lower_files_after(warehouse, entry.uuid, state.data_files)
            action, why = due(state, record, policy, before_ms)
            if action is None:
                del seen.tables[key]
                continue
            seen.tables[key] = self._idle_ms(warehouse, identifier, state, record, policy)
            if max(record.retry_after_ms, seen.tables[key]) <= now_ms:
                found.append(_Due(key, action, why))
        return found

    def not_before_ms(
        self,
        warehouse: str,
        identifier: Identifier,
        state: Health,
        record: TableRecord,
        policy: TablePolicy,
    ) -> int:
        """The time before which a table that is due is left alone."""
        return max(record.retry_after_ms, self._idle_ms(warehouse, identifier, state, record, policy))

    def _idle_ms(
        self,
        warehouse: str,
        identifier: Identifier,
        state: Health,
        record: TableRecord,
        policy: TablePolicy,
    ) -> int:
        """The time from which the writer of a table counts as idle; 0 if it does not matter. A compaction may
        make a commit of another writer fail, and never one of ingest.
        """
        if record.requested or self._tables.one(warehouse, lane_of(identifier.parts)).number is not None:
            return 0
        return quiet_ms(state, policy)

    def _look_at_archives(
        self, warehouse: str, seen: _Seen, policies: Mapping[TableKey, Mapping[str, Any]]
    ) -> None:
        """A new day or a new policy makes tables due that nothing was written to."""
        day = self._catalog.now_ms() // archive.DAY_MS
        if (day, policies) == (seen.archive_day, seen.policies):
            return
        seen.archive_day, seen.policies = day, policies
        seen.tables = dict.fromkeys(seen.tables, 0)
        if any(given.get("archive-after-days") for given in policies.values()):
            for name in self._tables.all(warehouse):
                seen.tables[Namespace(name[:-1]).key, f"{name[-1]}{CHANGES_SUFFIX}"] = 0

    def _entry(self, warehouse: str, key: TableKey) -> CatalogEntry | None:
        entry = self._catalog.state(WarehouseRef(warehouse)).load(*key)
        return entry if entry is not None and entry.kind == "table" and entry.text is not None else None

    def _document(self, entry: CatalogEntry) -> dict[str, Any]:
        return self._catalog.documents.parsed(entry)

    # -- the job

    def _begin(self, worker: str, warehouse: str, due_now: _Due) -> dict[str, Any] | None:
        key = due_now.key
        identifier = Identifier(Namespace.from_key(key[0]), key[1])
        name: TableName = (*identifier.namespace.levels, identifier.name)
        job_id, lane = uuid.uuid4().hex, lane_of(name)
        entry = self._entry(warehouse, key)
        if entry is None or not self._jobs.begin(job_id, warehouse, worker, [lane], LEASE_S):
            return None
        policy = self._policies.of_table(warehouse, identifier)
        described = {
            "id": job_id,
            "kind": KIND,
            "warehouse": warehouse,
            "namespace": list(identifier.namespace.levels),
            "name": identifier.name,
            "actions": [due_now.action],
            "sort": self._sort_columns(warehouse, name, lane),
            "step-bytes-max": self._steps[due_now.action].bytes_max,
            "policy": policy.as_json(),
            "archive": self._archive(warehouse, identifier, policy, self._document(entry)),
            "why": due_now.why,
            "lease-s": LEASE_S,
        }
        description = orjson.dumps(described)
        if not self._jobs.staged(job_id, 1, description, NO_LANDING, LEASE_S):
            return None
        # If the worker fails, other tables go first for a while.
        attempt = {"time-ms": self._catalog.now_ms(), "job": job_id, "why": due_now.why}
        retry_ms = self._catalog.now_ms() + RETRY_MS
        self._store.note(warehouse, entry.uuid, "attempt", attempt, retry_after_ms=retry_ms)
        return described | {"epoch": 1}

    def _archive(
        self, warehouse: str, identifier: Identifier, policy: TablePolicy, metadata: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """The archive of a table for the worker. A compaction leaves alone what belongs there."""
        until_ms = self.archive_before_ms(warehouse, identifier, policy)
        if until_ms is None:
            return None
        name: TableName = (*identifier.namespace.levels, identifier.name)
        landed = self._tables.one(warehouse, lane_of(name))
        path = archive.folder(metadata, policy, identifier)
        names, schema = landed.settings.names, current_schema(metadata) or {"fields": []}
        columns = {one["name"] for one in schema["fields"]}
        return {
            "column": names["commit-timestamp"],
            "sort": [names[one] for one in ("commit-timestamp", "order") if names[one] in columns],
            "before-us": until_ms * 1000,
            "path": path,
            "properties": archive.properties(metadata, path),
            "compression-level": policy.archive_compression_level,
            "storage-class": policy.archive_storage_class,
        }

    def _sort_columns(self, warehouse: str, name: TableName, lane: TableName) -> list[str]:
        """Mirrors are sorted by their key, changes and rejects by time; other tables keep their order."""
        settings = self._tables.one(warehouse, lane)
        if settings.number is None or name == lane:
            return []  # by the identifier fields of the table, which the worker knows
        return [
            settings.settings.names["commit-timestamp"] if name[-1].endswith(CHANGES_SUFFIX) else REJECTED_AT
        ]


def lane_of(name: TableName) -> TableName:
    """The lane of a table: that of the mirror for its changes and rejects."""
    for suffix in (CHANGES_SUFFIX, REJECTS_SUFFIX):
        if name[-1].endswith(suffix):
            return (*name[:-1], name[-1].removesuffix(suffix))
    return name
