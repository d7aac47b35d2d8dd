"""Maintenance of a server: the rounds in this process, policies, and what the API shows and starts."""

from __future__ import annotations

from typing import Any

import orjson

from catalog.errors import Invalid, NoSuchTable
from catalog.locations import Location, require_below
from catalog.models import CatalogEntry
from catalog.moments import AtTime
from catalog.names import Identifier, Namespace, WarehouseRef
from catalog.services import namespaces
from catalog.services.catalog import Catalog
from ingest.store.jobs import Job, Jobs
from ingest.store.tables import LandingTables
from ingest.verification.service import VerificationService
from maintenance import archive
from maintenance.archive import ARCHIVE
from maintenance.health import due, health, reasons
from maintenance.jobs import KIND, MaintenanceJobs
from maintenance.orphans import Orphans
from maintenance.policies import Policies
from maintenance.rounds import Rounds, RoundSettings
from maintenance.row_lifetimes import RowLifetimes
from maintenance.store import MaintenanceStore, TableRecord

EXPIRE = "expire"


class Maintenance:
    """`is_on` is False if the server does nothing by itself; requests are still carried out."""

    def __init__(
        self,
        catalog: Catalog,
        store: MaintenanceStore,
        policies: Policies,
        settings: RoundSettings,
        *,
        is_on: bool = True,
        rows: RowLifetimes | None = None,
    ) -> None:
        self._catalog = catalog
        self._store = store
        self._policies = policies
        self.rounds = Rounds(catalog, store, policies, settings, rows)
        self._landing_jobs = Jobs(catalog.database)
        self.jobs = MaintenanceJobs(
            catalog, store, policies, self._landing_jobs, LandingTables(catalog.database)
        )
        self._orphans = Orphans(catalog, store)
        self._is_on = is_on
        self.verification: VerificationService | None = None  # its jobs end as those of maintenance do

    def start(self) -> None:
        if self._is_on:
            self.rounds.start()

    def stop(self) -> None:
        self.rounds.stop()

    # -- policies

    def policy(self, warehouse: str, namespace: Namespace | None = None, name: str = "") -> dict[str, Any]:
        """The policy that holds for a warehouse, a namespace or a table, and what is set there."""
        if namespace is not None and not name:
            namespaces.properties_of(self._catalog.state(WarehouseRef(warehouse)), namespace)
        given = self._store.policies(warehouse)
        identifier = Identifier(namespace, name) if namespace is not None else None
        return {
            "policy": self._policies.effective(given, identifier).as_json(),
            "own": given.get((namespace.key if namespace is not None else "", name), {}),
        }

    def set_policy(
        self, warehouse: str, values: dict[str, Any], namespace: Namespace | None = None, name: str = ""
    ) -> dict[str, Any]:
        if namespace is not None and name:
            self._entry(warehouse, Identifier(namespace, name))
        elif namespace is not None:
            namespaces.properties_of(self._catalog.state(WarehouseRef(warehouse)), namespace)
        values = {name.replace("_", "-"): value for name, value in values.items()}
        self._policies.check(values, is_warehouse=namespace is None)
        if values.get("archive-location"):
            require_below(self._catalog.warehouse(warehouse), values["archive-location"], "archive-location")
        root = self._catalog.warehouse(warehouse).root
        if values.get("archive-storage-class") and Location.parse(root).scheme != "s3":
            raise Invalid(f"archive-storage-class is for warehouses on S3, and this one is at {root}")
        self._store.set_policy(warehouse, namespace.key if namespace is not None else "", name, values)
        return self.policy(warehouse, namespace, name)

    # -- what is shown

    def of_warehouse(self, warehouse: str, tables_max: int) -> dict[str, Any]:
        kept = self._catalog.moments.all(warehouse)
        oldest = kept.listed[0] if kept.listed else None
        records, given = self._store.tables(warehouse), self._store.policies(warehouse)
        waiting = self._store.waiting_files(warehouse)
        tables: list[dict[str, Any]] = []
        for entry in self._entries(warehouse):
            if len(tables) == tables_max:
                break
            record = records.get(entry.uuid) or TableRecord(entry.uuid)
            tables.append(self._shown(warehouse, entry, record, given, waiting.get(entry.uuid, 0)))
        return self.policy(warehouse) | {
            "kept_moments": {
                "policy": str(self._policies.kept_moments(warehouse)),
                "kept": len(kept.listed),
                "thinned_number": kept.thinned_number,
                "oldest": {"number": oldest[0], "time": str(AtTime(oldest[1]))} if oldest else None,
            },
            "tables": tables,
        }

    def of_table(self, warehouse: str, identifier: Identifier) -> dict[str, Any]:
        entry = self._entry(warehouse, identifier)
        given = self._store.policies(warehouse)
        waiting = self._store.waiting_files(warehouse)
        record = self._store.table(warehouse, entry.uuid)
        return self._shown(warehouse, entry, record, given, waiting.get(entry.uuid, 0))

    def _shown(
        self,
        warehouse: str,
        entry: CatalogEntry,
        record: TableRecord,
        given: dict[tuple[str, str], dict[str, Any]],
        files_waiting: int,
    ) -> dict[str, Any]:
        identifier = Identifier(Namespace.from_key(entry.namespace), entry.name)
        policy = self._policies.effective(given, identifier)
        found = health(self._document(entry))
        before_ms = self.jobs.archive_before_ms(warehouse, identifier, policy)
        action, why = due(found, record, policy, before_ms)
        shown = found.as_json()
        if before_ms is not None:
            shown["archived-before"] = archive.archived_before(record)
        last = {action: facts for action, facts in record.done.items() if action != "attempt"}
        return {
            "namespace": list(identifier.namespace.levels),
            "name": entry.name,
            "policy": policy.as_json(),
            "own": given.get((entry.namespace, entry.name), {}),
            "health": shown,
            "next": action,
            "why": why,
            "not_before_ms": (
                self.jobs.not_before_ms(warehouse, identifier, found, record, policy) if action else None
            ),
            "last": last,
            "files_waiting": files_waiting,
        }

    # -- actions

    def request(
        self, warehouse: str, identifier: Identifier, action: str, *, is_dry_run: bool
    ) -> dict[str, Any]:
        """Ask a worker for an action, or say what it would find."""
        entry = self._entry(warehouse, identifier)
        found = health(self._document(entry))
        if is_dry_run:
            policy = self._policies.of_table(warehouse, identifier)
            record = self._store.table(warehouse, entry.uuid)
            if action == ARCHIVE:
                before_ms = self.jobs.archive_before_ms(warehouse, identifier, policy)
                why = archive.why(record, before_ms)
            else:
                why = reasons(found, record, policy)
            return {"state": "dry-run", "detail": found.as_json() | {"why": why}}
        self.jobs.request(warehouse, identifier, entry.uuid, action)
        return {"state": "requested", "detail": found.as_json()}

    def expire(self, warehouse: str, identifier: Identifier, *, is_dry_run: bool) -> dict[str, Any]:
        entry = self._entry(warehouse, identifier)
        expiry = self.rounds.expiry(self._policies.kept_moments(warehouse))
        kept = self._catalog.moments.all(warehouse)
        done = expiry.expire(warehouse, identifier, kept, is_dry_run=is_dry_run)
        if done is None:
            return {"state": "nothing-to-do", "detail": {}}
        detail = {"snapshots": done.snapshots, "schemas": done.schemas, "remaining": done.remaining}
        if is_dry_run:
            return {"state": "dry-run", "detail": detail}
        facts = {**detail, "time-ms": self._catalog.now_ms()}
        self._store.note(warehouse, entry.uuid, EXPIRE, facts)
        return {"state": "done", "detail": detail}

    def remove_orphans(self, warehouse: str, identifier: Identifier, *, is_dry_run: bool) -> dict[str, Any]:
        entry = self._entry(warehouse, identifier)
        policy = self._policies.of_table(warehouse, identifier)
        home = self._catalog.warehouse(warehouse)
        if is_dry_run:
            found = self._orphans.find(home, entry, policy.orphan_age_hours)
            return {"state": "dry-run", "detail": found.as_json()}
        found, deleted = self._orphans.remove(home, entry, policy.orphan_age_hours)
        detail = found.as_json() | {"deleted": deleted}
        return {"state": "done" if deleted else "nothing-to-do", "detail": detail}

    # -- jobs

    def job(self, job_id: str) -> Job | None:
        """An unfinished or finished job that is no batch."""
        verified = self.verification.job(job_id) if self.verification is not None else None
        if verified is not None:
            return verified
        found = self._landing_jobs.get(job_id)
        if found is None or not found.description:
            return None
        return found if orjson.loads(found.description).get("kind") == KIND else None

    def complete(self, job: Job, epoch: int, facts: dict[str, Any]) -> None:
        if job.state == "done" and job.epoch == epoch:
            return  # a repeat, whose answer was lost
        if self.verification is not None and self.verification.job(job.id) is not None:
            self.verification.complete(job, epoch, facts)
            return
        self.jobs.complete(job, epoch, facts)

    # -- tables

    def _entry(self, warehouse: str, identifier: Identifier) -> CatalogEntry:
        entry = self._catalog.state(WarehouseRef(warehouse)).load(identifier.namespace.key, identifier.name)
        if entry is None or entry.kind != "table":
            raise NoSuchTable(f"Table does not exist: {identifier}")
        return entry

    def _entries(self, warehouse: str) -> Any:
        after = ("", "")
        while found := self._catalog.records.entries_after(warehouse, *after, 100):
            yield from (entry for entry in found if entry.kind == "table")
            after = (found[-1].namespace, found[-1].name)

    def _document(self, entry: CatalogEntry) -> dict[str, Any]:
        return self._catalog.documents.parsed(entry)
