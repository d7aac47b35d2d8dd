"""Rebuild mirrors from their changes tables: check whether it is possible, and create the jobs for workers.

A rebuild occupies the lane of its table, as a batch does. From its request on, nothing lands in the table;
changes are acknowledged and wait. The publish replaces all rows of the mirror in one commit and ends the
request.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import orjson

from catalog.errors import CatalogError, Conflict
from catalog.names import Namespace
from catalog.services.catalog import Catalog, CurrentState
from ingest.change import Change, Declared, TableName
from ingest.identity import NO_KEY, SETTING, Key, current_schema, reasoned_key
from ingest.settings import TableSettings
from ingest.store.jobs import Job, Jobs, LostLease, PublishPlan
from ingest.store.mirrors import OTHERS, Mirror, Mirrors, counted, request
from ingest.store.tables import CHANGES_SUFFIX, LandedTable, LandingTables, TableAdvance

KIND = "rebuild"
LEASE_S = 30.0
LOOK_EVERY_S = 1.0
ATTEMPTS_MAX = 4  # then an operator has to act
RESYNC = "resync it from its source, or drop the mirror and its changes table and load it anew"
Metadata = Mapping[str, Any]
_KEY_SET = "its key was set"

_log = logging.getLogger(__name__)


class CannotRebuild(Conflict):
    type = "CannotRebuildException"


class Rebuilds:
    def __init__(
        self,
        catalog: Catalog,
        jobs: Jobs,
        tables: LandingTables,
        mirrors: Mirrors,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self._catalog = catalog
        self._jobs = jobs
        self._tables = tables
        self._mirrors = mirrors
        self.wake = wake
        self._looked_s = 0.0
        self._lock = threading.Lock()

    # -- requests

    def request(self, warehouse: str, table: TableName, why: str, *, is_needed: bool = False) -> None:
        """Request a rebuild. CannotRebuild says why it is not possible, and what to do instead."""
        reason = self.why_not(warehouse, table)
        if reason is not None:
            raise CannotRebuild(reason)
        self._mirrors.request(warehouse, table, why, is_needed=is_needed)
        self._looked_s = 0.0
        self.wake()

    def set_settings(self, warehouse: str, table: TableName, settings: TableSettings) -> None:
        """Set the settings of a table. If its mirror does not fit them, it is rebuilt before anything else
        lands. CannotRebuild if that is not possible; then nothing is set.
        """
        landed, mirror = self._tables.one(warehouse, table), self._mirrors.one(warehouse, table)
        why = _why_rebuild(landed, settings) if landed.number is not None else None
        if why is None:
            self._tables.set_settings(warehouse, table, settings)
            if mirror is not None and mirror.rebuild == _KEY_SET:
                self._mirrors.cancel(warehouse, table)
            return
        reason = self.why_not(warehouse, table, settings)
        if reason is not None:
            raise CannotRebuild(reason)
        self._tables.set_settings(
            warehouse, table, settings, lambda connection: request(connection, warehouse, table, why)
        )
        self._looked_s = 0.0
        self.wake()

    def why_not(self, warehouse: str, table: TableName, settings: TableSettings | None = None) -> str | None:
        """Return why the mirror of a table cannot be rebuilt from its changes table; None if it can.
        `settings` are the new settings of the table.
        """
        label, mirror = ".".join(table), self._mirrors.one(warehouse, table)
        if mirror is None:
            return f"{label} cannot be rebuilt: no change of it has landed"
        if mirror.gap is not None:
            return f"{label} cannot be rebuilt from its changes table: {mirror.gap}. {_sentence(RESYNC)}"
        landed = self._tables.one(warehouse, table)
        if settings is not None:
            landed = replace(landed, settings=settings)
        if landed.settings.mode in ("changes", "append"):
            return f"{label} has no mirror to rebuild: its mode is {landed.settings.mode}"
        changes = self._metadata(warehouse, table, CHANGES_SUFFIX)
        if changes is None:
            return f"{label} cannot be rebuilt: it has no changes table. {_sentence(RESYNC)}"
        if not _has_rows(changes, mirror.changes_rows):
            return f"{label} cannot be rebuilt from its changes table: {OTHERS}. {_sentence(RESYNC)}"
        if not self._key(landed, self._metadata(warehouse, table)).columns:
            return f"{label} cannot be rebuilt: {NO_KEY}"
        return None

    def state(self, warehouse: str, table: TableName) -> dict[str, Any]:
        """Return the mirror as `GET …/ingest` shows it."""
        mirror = self._mirrors.one(warehouse, table)
        if mirror is None:
            return {}
        return shown(mirror, self._job(warehouse, table) if mirror.rebuild is not None else None)

    def _job(self, warehouse: str, table: TableName) -> Job | None:
        """Return the job that rebuilds the table: it is leased, or it failed and is leased again later."""
        job_id = self._jobs.of_table(warehouse, table)
        job = self._jobs.get(job_id) if job_id is not None else None
        return job if job is not None and job.state != "staging" and job.kind == KIND else None

    # -- jobs

    def next_job(self, worker: str, warehouses: Collection[str]) -> dict[str, Any] | None:
        """Return a rebuild job: one whose worker has ended or failed, or a new one. None if there is none."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            if time.monotonic() - self._looked_s < LOOK_EVERY_S:
                return None
            self._looked_s = time.monotonic()
            return self._repeated(worker, warehouses) or self._new(worker, warehouses)
        finally:
            self._lock.release()

    def _repeated(self, worker: str, warehouses: Collection[str]) -> dict[str, Any] | None:
        """Return a job that was given back or whose lease has expired."""
        for job_id, _, state in self._jobs.due():
            job = self._jobs.get(job_id) if state != "staging" else None
            if job is not None and job.kind == KIND and job.warehouse in warehouses:
                found = self._take(worker, job)
                if found is not None:
                    return found
        return None

    def _new(self, worker: str, warehouses: Collection[str]) -> dict[str, Any] | None:
        for warehouse, table in self._mirrors.due():
            found = self._begin(worker, warehouse, table) if warehouse in warehouses else None
            if found is not None:
                return found
        return None

    def fail(self, job: Job, error: str, *, retry: bool) -> None:
        """Lease the job again later, or give the rebuild up if no attempt is left or none can succeed."""
        is_repeated = retry and job.attempts < ATTEMPTS_MAX
        if not (self._jobs.give_back(job, error) if is_repeated else self._jobs.discard(job)):
            raise LostLease(job.id, job.epoch)
        if not is_repeated:
            self._give_up(job, error)

    def _take(self, worker: str, job: Job) -> dict[str, Any] | None:
        """Lease a job again. None if another worker was faster, or if the job is ended instead."""
        if not self._jobs.take(job.id, job.epoch, worker, LEASE_S):
            return None
        leased = replace(job, state="leased", epoch=job.epoch + 1)
        table = _table(job)
        mirror = self._mirrors.one(job.warehouse, table)
        if mirror is None or mirror.rebuild is None or (mirror.requested_ms or 0) > job.created_ms:
            self._jobs.discard(leased)  # not due any more; or requested again, and then a new job begins
            return None
        reason = self.why_not(job.warehouse, table)
        if reason is None and job.attempts >= ATTEMPTS_MAX:
            reason = f"its worker stopped {job.attempts} times before the rebuild was done"
        if reason is not None:
            self._jobs.discard(leased)
            self._give_up(leased, reason)
            return None
        return leased.described(leased.epoch)

    def _give_up(self, job: Job, error: str) -> None:
        table = _table(job)
        _log.warning("a rebuild was given up", extra={"table": table, "reason": error[:1000]})
        mirror = self._mirrors.one(job.warehouse, table)
        if mirror is not None:
            remedy = f"`calve table rebuild {'.'.join(table)}` tries it again"
            self._mirrors.fail(mirror, f"{error[:800].rstrip('.')}. {remedy}")

    def _begin(self, worker: str, warehouse: str, table: TableName) -> dict[str, Any] | None:
        job_id = uuid.uuid4().hex
        if not self._jobs.begin(job_id, warehouse, worker, [table], LEASE_S):
            return None
        try:
            description, landing = self._describe(job_id, warehouse, table)
        except CatalogError as error:
            self._jobs.forget(job_id, 1)
            mirror = self._mirrors.one(warehouse, table)
            _log.warning("a mirror cannot be rebuilt", extra={"table": table, "reason": error.message})
            if mirror is not None and isinstance(error, Conflict):
                self._mirrors.fail(mirror, error.message)
            return None
        except BaseException:
            self._jobs.forget(job_id, 1)
            raise
        if not self._jobs.staged(job_id, 1, orjson.dumps(description), landing.encode(), LEASE_S):
            return None
        return description | {"epoch": 1}

    def _describe(self, job_id: str, warehouse: str, table: TableName) -> tuple[dict[str, Any], PublishPlan]:
        """Return the job as a worker gets it, and what its publish sets. The tables are claimed already."""
        reason = self.why_not(warehouse, table)
        if reason is not None:
            raise CannotRebuild(reason)
        landed, known = self._tables.one(warehouse, table), self._mirrors.one(warehouse, table)
        mirror, changes = (self._metadata(warehouse, table, suffix) for suffix in ("", CHANGES_SUFFIX))
        assert changes is not None
        assert known is not None
        key = self._key(landed, mirror)
        columns, requests = rebuilt_table(table, landed.settings, mirror, changes, key.columns)
        commit_us = max(time.time_ns() // 1000, landed.commit_us + 1)
        described = {
            "namespace": list(table[:-1]),
            "name": table[-1],
            "columns": columns,
            "key": list(key.columns),
            "mirror": table[-1],
            "changes": table[-1] + CHANGES_SUFFIX,
            "names": dict(landed.settings.names),
            "requests": requests,
            "rekeyed": any(other != key.columns for other in known.keys),
        }
        step = TableAdvance(
            table,
            landed.landed_id,
            landed.landed_id,
            0,
            0,
            landed.load_key,
            None,
            {},
            key=key.columns,
            key_reason=key.reason,
        )
        job = {
            "id": job_id,
            "kind": KIND,
            "warehouse": warehouse,
            "batch-id": job_id,
            "commit-timestamp-us": commit_us,
            "lease-s": LEASE_S,
            "tables": [described],
        }
        return job, PublishPlan(commit_us, [], [step])

    def _key(self, landed: LandedTable, mirror: Metadata | None) -> Key:
        """Return the current key."""
        if landed.settings.key:
            return Key(tuple(landed.settings.key), SETTING)
        if landed.known_key:
            return Key(landed.known_key, landed.key_reason)
        return reasoned_key(None, current_schema(mirror), ())

    def _metadata(self, warehouse: str, table: TableName, suffix: str = "") -> dict[str, Any] | None:
        catalog = self._catalog
        state = CurrentState(catalog.database, catalog.entries, warehouse, catalog.documents)
        entry = state.load(Namespace(table[:-1]).key, table[-1] + suffix)
        if entry is None or entry.kind != "table":
            return None
        found: dict[str, Any] = orjson.loads(entry.document or b"{}")
        return found


def _table(job: Job) -> TableName:
    (step,) = PublishPlan.decode(job.landing).steps
    return step.table


def _why_rebuild(landed: LandedTable, settings: TableSettings) -> str | None:
    if settings.mode in ("changes", "append"):
        return None
    if settings.key and set(settings.key) != set(landed.known_key):
        return _KEY_SET
    if landed.settings.mode == "changes":
        return f"its mode was set to {settings.mode}"
    return None


def shown(mirror: Mirror, job: Job | None = None) -> dict[str, Any]:
    """Return a mirror as JSON. `job` is the one that rebuilds it."""
    is_running = job is not None and job.state == "leased"
    state = "none" if mirror.rebuild is None else "running" if is_running else "requested"
    return {
        "key": list(mirror.key) or None,
        "key_reason": mirror.key_reason,
        "doubt": mirror.doubt,
        "gap": mirror.gap,
        "rebuild": {
            "state": "failed" if mirror.rebuild_error is not None else state,
            "why": mirror.rebuild,
            "requested_ms": mirror.requested_ms,
            "attempts": job.attempts if job is not None else 0,
            "progress": orjson.loads(job.progress) if job is not None and is_running else None,
            "error": mirror.rebuild_error or (job.error if job is not None else None),
            "rebuilt_ms": mirror.rebuilt_ms,
            "rebuilt_number": mirror.rebuilt_number,
            "rebuilt_why": mirror.rebuilt_why,
        },
    }


def rebuilt_table(
    table: TableName,
    settings: TableSettings,
    mirror: Metadata | None,
    changes: Metadata,
    key: tuple[str, ...],
) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the columns of a rebuilt mirror, and the catalog requests that create it or set its key."""
    from ingest.staging.targets import (
        TABLE_PROPERTIES,
        commit_table,
        create_table,
        create_table_body,
        schema_updates,
    )
    from ingest.types.schema_plan import partition_spec, plan, with_identifiers

    added_names, stamp = set(settings.names.values()), settings.names["commit-timestamp"]
    source = current_schema(changes)
    assert source is not None
    types = {field["name"]: field["type"] for field in source["fields"] if field["name"] not in added_names}
    missing = [column for column in key if column not in types]
    if missing:
        raise CannotRebuild(
            f'{".".join(table)} cannot be rebuilt: it has no column "{missing[0]}" for its key'
        )
    schema = current_schema(mirror)
    if mirror is None or schema is None:
        like = [Change(0, table, "insert", after={}, declared=Declared(types))]
        made = plan(None, like, policy="evolve", key=key, extra=[(stamp, "timestamptz")], last_column_id=0)
        assert made.schema is not None
        spec = partition_spec(made.schema, settings.partition) if settings.partition else None
        properties = {
            **TABLE_PROPERTIES,
            "format-version": str(settings.format_version),
            **settings.properties,
        }
        body = create_table_body(table[-1], made.schema, spec, properties)
        return [column.name for column in made.columns], [create_table(table, body)]
    columns = [field["name"] for field in schema["fields"] if field["name"] in types]
    rekeyed = with_identifiers(schema, key)
    requests = [] if rekeyed == schema else [commit_table(table, schema_updates(mirror, rekeyed))]
    return columns, requests


def _has_rows(changes: Metadata, rows: int) -> bool:
    """Return whether the changes table has as many rows as batches have written."""
    current = changes.get("current-snapshot-id")
    for snapshot in changes.get("snapshots") or ():
        if snapshot["snapshot-id"] == current:
            summary = snapshot.get("summary") or {}
            deletes = int(summary.get("total-delete-files", 0))
            return not deletes and counted(snapshot).total_rows == rows
    return rows == 0


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]
