"""Create verification jobs for Spark workers, and store their results.

A job compares a mirror with the fold of its changes table at one number of the warehouse. It does not occupy
the lane of the table: both tables are read as of the number, and batches continue. It claims the name of the
changes table, so that there is no second job for the same table.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

import orjson
import sqlalchemy as sa

from catalog.models import CatalogEntry
from catalog.names import Namespace, WarehouseRef
from catalog.services.catalog import Catalog
from ingest.change import TableName
from ingest.identity import current_schema, key_of_table
from ingest.landing.job_service import OtherJobs
from ingest.settings import KeepChecksums
from ingest.store.jobs import Job, Jobs, finish
from ingest.store.tables import CHANGES_SUFFIX, LandedTable, LandingTables
from ingest.verification import metrics
from ingest.verification.kept_checksums import KeptChecksumsCheck, checksums_differ
from ingest.verification.references import WAITING, compared, is_due
from ingest.verification.store import Verification, Verifications, now_ms

KIND = "verify"
LEASE_S = 30.0
LOOK_EVERY_S = 1.0
LOOK_IDLE_EVERY_S = 10.0
RETRY_MS = 10_000
SHARE_OF_TIME_MAX = 0.01  # of a worker slot, for verifications that were not requested
NO_LANDING = orjson.dumps({"commit_us": 0, "files": [], "steps": []})
NO_CHANGES = "the table has no changes table: set its mode to mirror+changes"
NOTHING_LANDED = "nothing has landed in the table"


class PrioritizedJobs:
    """Several kinds of jobs, in the order of their priority."""

    def __init__(self, kinds: Iterable[OtherJobs]) -> None:
        self._kinds = tuple(kinds)

    def next_job(self, worker: str, warehouses: Collection[str]) -> dict[str, Any] | None:
        found = (kind.next_job(worker, warehouses) for kind in self._kinds)
        return next((job for job in found if job is not None), None)


class VerificationJobs:
    """`interval_s`: how often a table that has changed is verified without a request; 0 is never."""

    def __init__(
        self,
        catalog: Catalog,
        store: Verifications,
        jobs: Jobs,
        tables: LandingTables,
        interval_s: float,
        checksums: KeepChecksums = "each-batch",
    ) -> None:
        self._catalog = catalog
        self._store = store
        self._jobs = jobs
        self._tables = tables
        self._interval_ms = int(interval_s * 1000)
        self._checksums = KeptChecksumsCheck(catalog, checksums)
        self._opened_ms = now_ms()
        self._looked_s = 0.0
        self._looked_idle_s = 0.0
        self._lock = threading.Lock()
        self.idle = _Idle(self)
        # Why the changes table of a mirror does not have all of its changes; None if it has.
        self.gap: Callable[[str, TableName], str | None] = _no_gap

    # -- what is due

    def next_job(self, worker: str, warehouses: Collection[str]) -> dict[str, Any] | None:
        """Return a job that was requested, or that compares with checksums of the source."""
        with self._lock:
            if time.monotonic() - self._looked_s < LOOK_EVERY_S:
                return None
            self._looked_s = time.monotonic()
        for warehouse in warehouses:
            for record in self._store.wanted(warehouse):
                if now_ms() - record.started_ms < RETRY_MS and record.checked_ms < record.started_ms:
                    continue
                if record.requested_ms is None and not self._has_reached(warehouse, record):
                    continue
                job = self._begin(worker, warehouse, record)
                if job is not None:
                    return job
        return None

    def idle_job(self, worker: str, warehouses: Collection[str]) -> dict[str, Any] | None:
        """Return a job for a table that has changed since its last verification, if that was long
        enough ago.
        """
        with self._lock:
            if not self._interval_ms or time.monotonic() - self._looked_idle_s < LOOK_IDLE_EVERY_S:
                return None
            self._looked_idle_s = time.monotonic()
        for warehouse in warehouses:
            records = self._store.all(warehouse)
            for table, landed in self._tables.all(warehouse).items():
                record = records.get(table) or Verification(table)
                if self._is_idle_due(warehouse, landed, record):
                    job = self._begin(worker, warehouse, record)
                    if job is not None:
                        return job
        return None

    def _has_reached(self, warehouse: str, record: Verification) -> bool:
        reference = record.reference
        if reference is None or reference["state"] != WAITING:
            return False
        return is_due(reference, self._positions(warehouse, record.table))

    def _is_idle_due(self, warehouse: str, landed: LandedTable, record: Verification) -> bool:
        took_ms = record.found.get("ms", 0)
        pause_ms = max(self._interval_ms, int(took_ms / SHARE_OF_TIME_MAX))
        before_ms = max(record.started_ms, record.checked_ms, self._opened_ms)
        if not landed.table or landed.number is None or now_ms() - before_ms < pause_ms:
            return False
        mirror, changes = self._entries(WarehouseRef(warehouse), landed.table)
        if mirror is None or changes is None:
            return False
        return self._snapshots(mirror, changes) != record.found.get("snapshots")

    # -- the job

    def _begin(self, worker: str, warehouse: str, record: Verification) -> dict[str, Any] | None:
        table = record.table
        # Read before the number: at least the changes up to here are verified.
        positions, landed = self._positions(warehouse, table), self._tables.one(warehouse, table)
        number = (self._catalog.entries.number(warehouse) or (0, 0))[0]
        mirror, changes = self._entries(WarehouseRef(warehouse, at=str(number)), table)
        if mirror is None or landed.number is None:
            reason: str | None = NOTHING_LANDED
        else:
            reason = NO_CHANGES if changes is None else self.gap(warehouse, table)
        if mirror is None or changes is None or reason is not None:
            self._note(warehouse, record, {"state": "not-verifiable", "reason": reason, "number": number})
            return None
        job_id = uuid.uuid4().hex
        claim = (*table[:-1], table[-1] + CHANGES_SUFFIX)
        if not self._jobs.begin(job_id, warehouse, worker, [claim], LEASE_S):
            return None
        key = key_of_table(landed.settings.key, current_schema(self._document(mirror)), ())
        described: dict[str, Any] = {
            "id": job_id,
            "kind": KIND,
            "warehouse": warehouse,
            "number": number,
            "namespace": list(table[:-1]),
            "name": table[-1],
            "changes": claim[-1],
            "key": [] if landed.settings.mode == "append" else list(key),
            "names": dict(landed.settings.names),
            "reference": record.reference if is_due(record.reference, positions) else None,
            "lease-s": LEASE_S,
        }
        kept = {
            "positions": positions,
            "snapshots": self._snapshots(mirror, changes),
            "kept": self._checksums.before(warehouse, landed, self._document(mirror)),
        }
        description = orjson.dumps(described | kept)
        if not self._jobs.staged(job_id, 1, description, NO_LANDING, LEASE_S):
            return None
        self._store.started(warehouse, table, job_id)
        return described | {"epoch": 1}

    def complete(self, job: Job, epoch: int, facts: dict[str, Any]) -> None:
        """End a job and store its result. CommitFailed if the job is no longer leased under this epoch."""
        described: dict[str, Any] = orjson.loads(job.description)
        table: TableName = (*described["namespace"], described["name"])
        record = self._store.one(job.warehouse, table)
        number = int(described["number"])
        if "error" in facts:
            found: dict[str, Any] = {
                "state": "failed",
                "reason": str(facts["error"])[:2000],
                "number": number,
            }
        else:
            state = "differs" if sum(facts.get("differences", {}).values()) else "equal"
            found = {**facts, "state": state, "snapshots": described["snapshots"]}
            found |= self._checksums.compared(described.get("kept"), facts)
        verified, reference = record.verified, record.reference
        if found["state"] == "equal":
            verified = {"number": number, "time-ms": now_ms(), "positions": described["positions"]}
        if described["reference"] is not None and "reference" in facts:
            reference = compared(described["reference"], found.pop("reference"))
            newer = record.reference is None or record.reference["posted-ms"] > reference["posted-ms"]
            reference = record.reference if newer else reference
        checked = replace(
            record,
            checked_ms=now_ms(),
            number=number,
            found=found,
            verified=verified,
            reference=reference,
        )

        def work(connection: sa.Connection) -> None:
            finish(connection, job.id, epoch, number, {"state": found["state"]})
            self._store.checked(connection, job.warehouse, checked)
            if found["state"] == "equal" and not checksums_differ(found):
                self._checksums.set_anew(connection, job.warehouse, table, described, facts)

        self._catalog.database.write(work)
        metrics.checked(found["state"], facts)

    def _note(self, warehouse: str, record: Verification, found: Mapping[str, Any]) -> None:
        started = replace(record, started_ms=now_ms(), checked_ms=now_ms(), found=found)
        self._catalog.database.write(lambda connection: self._store.checked(connection, warehouse, started))

    # -- tables

    def _positions(self, warehouse: str, table: TableName) -> dict[str, str]:
        marks = self._tables.watermarks(warehouse)
        return {mark.source: mark.position for mark in marks if mark.table == table}

    def _entries(
        self, ref: WarehouseRef, table: TableName
    ) -> tuple[CatalogEntry | None, CatalogEntry | None]:
        """Return the entries of the mirror and the changes table."""
        state = self._catalog.state(ref)
        namespace = Namespace(tuple(table[:-1])).key
        found = [state.load(namespace, name) for name in (table[-1], table[-1] + CHANGES_SUFFIX)]
        mirror, changes = (
            entry if entry is not None and entry.kind == "table" and entry.text is not None else None
            for entry in found
        )
        return mirror, changes

    def _document(self, entry: CatalogEntry) -> dict[str, Any]:
        return self._catalog.documents.parsed(entry)

    def _snapshots(self, *entries: CatalogEntry) -> list[Any]:
        return [self._document(entry).get("current-snapshot-id") for entry in entries]


def _no_gap(warehouse: str, table: TableName) -> str | None:
    return None


class _Idle:
    def __init__(self, jobs: VerificationJobs) -> None:
        self._jobs = jobs

    def next_job(self, worker: str, warehouses: Collection[str]) -> dict[str, Any] | None:
        return self._jobs.idle_job(worker, warehouses)
