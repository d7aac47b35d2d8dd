"""Request verifications, accept checksums of sources, and report the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import orjson

from catalog.errors import Invalid, NoSuchTable
from catalog.names import Identifier, WarehouseRef
from catalog.services.catalog import Catalog
from ingest.change import TableName, position_of
from ingest.identity import current_schema, key_of_table
from ingest.landing.job_staging import Wakeup
from ingest.store.checksums import NOT_KEPT, Checksums, KeptChecksums
from ingest.store.jobs import Job, Jobs
from ingest.store.tables import LandingTables
from ingest.verification.jobs import KIND, VerificationJobs
from ingest.verification.kept_checksums import checksums_differ
from ingest.verification.references import WAITING
from ingest.verification.store import Verification, Verifications, now_ms


class VerificationService:
    def __init__(
        self,
        catalog: Catalog,
        store: Verifications,
        jobs: Jobs,
        tables: LandingTables,
        due: VerificationJobs,
        wakeup: Wakeup,
    ) -> None:
        self._catalog = catalog
        self._store = store
        self._jobs = jobs
        self._tables = tables
        self._wakeup = wakeup
        self._checksums = Checksums(catalog.database)
        self.due = due

    def request(self, warehouse: str, identifier: Identifier) -> dict[str, Any]:
        """Request that a worker verifies the mirror now."""
        self._schema(warehouse, identifier)
        self._store.request(warehouse, identifier.parts)
        self._wakeup.wake()
        return self.of_table(warehouse, identifier)

    def post(self, warehouse: str, identifier: Identifier, posted: Mapping[str, Any]) -> dict[str, Any]:
        """Compare with checksums of the source, once its position has landed."""
        known = {field["name"] for field in self._schema(warehouse, identifier)["fields"]}
        unknown = [column for column in posted["columns"] if column not in known]
        if unknown:
            raise Invalid(f'columns: {identifier} has no column "{unknown[0]}"')
        position = posted["position"]
        reference = {
            **posted,
            "position": position_of(position) if isinstance(position, int) else position,
            "columns": sorted(posted["columns"]),
            "posted-ms": now_ms(),
            "state": WAITING,
        }
        self._store.post(warehouse, identifier.parts, reference)
        self._wakeup.wake()
        return self.of_table(warehouse, identifier)

    def of_table(self, warehouse: str, identifier: Identifier, *, checksums: bool = False) -> dict[str, Any]:
        schema = self._schema(warehouse, identifier)
        record = self._store.one(warehouse, identifier.parts)
        found = record.found
        settings = self._tables.one(warehouse, identifier.parts).settings
        key = key_of_table(settings.key, schema, ())
        added = set(settings.names.values())
        columns = [
            {"name": field["name"], "type": field["type"]}
            for field in schema["fields"]
            if field["name"] not in added
        ]
        shown: dict[str, Any] = {
            "state": self._state(record),
            "reason": found.get("reason"),
            "key": list(key),
            "columns": columns,
            "verified-through": record.verified,
            "checked": _checked(record),
            "differences": found.get("differences") or {},
            "keys": found.get("keys") or [],
            "source": _source(record.reference),
            "mend": _mend(warehouse, identifier, record),
            "kept-checksums": self._kept(warehouse, identifier.parts, found),
        }
        if checksums:
            shown["checksums"] = {"columns": found.get("columns"), "buckets": found.get("checksums")}
        return shown

    def _kept(self, warehouse: str, table: TableName, found: Mapping[str, Any]) -> dict[str, Any]:
        kept = self._checksums.one(warehouse, table)
        shown = kept.described() if kept is not None else dict(NOT_KEPT)
        compared = found.get("kept-checksums")
        return shown | ({"compared": compared} if compared is not None else {})

    def of_warehouse(self, warehouse: str) -> dict[TableName, dict[str, Any]]:
        """Return the results for /status."""
        records, kept = self._store.all(warehouse), self._checksums.all(warehouse)
        return {
            table: self._of_status(records.get(table) or Verification(table), kept.get(table))
            for table in {*records, *kept}
        }

    def _of_status(self, record: Verification, kept: KeptChecksums | None) -> dict[str, Any]:
        return {
            "state": self._state(record),
            "verified-through": record.verified,
            "differences": record.found.get("differences") or {},
            **({"source": record.reference["state"]} if record.reference is not None else {}),
            "kept-checksums": kept.described() if kept is not None else NOT_KEPT,
        }

    def job(self, job_id: str) -> Job | None:
        """Return a verification job."""
        found = self._jobs.get(job_id)
        if found is None or not found.description:
            return None
        return found if orjson.loads(found.description).get("kind") == KIND else None

    def complete(self, job: Job, epoch: int, facts: dict[str, Any]) -> None:
        self.due.complete(job, epoch, facts)

    def _state(self, record: Verification) -> str:
        if record.job_id is not None and self._jobs.state(record.job_id) == "leased":
            return "running"
        if record.requested_ms is not None:
            return "requested"
        return str(record.found.get("state", "unverified"))

    def _schema(self, warehouse: str, identifier: Identifier) -> dict[str, Any]:
        entry = self._catalog.state(WarehouseRef(warehouse)).load(identifier.namespace.key, identifier.name)
        if entry is None or entry.kind != "table":
            raise NoSuchTable(f"Table does not exist: {identifier}")
        schema = current_schema(orjson.loads(entry.document or b"{}"))
        assert schema is not None
        return schema


_CHECKED = (
    "number",
    "rows",
    "expected-rows",
    "buckets",
    "buckets-differing",
    "columns",
    "not-compared",
    "ms",
)


def _checked(record: Verification) -> dict[str, Any] | None:
    """Return the newest check."""
    if not record.checked_ms:
        return None
    found = record.found
    return {"time-ms": record.checked_ms, **{name: found[name] for name in _CHECKED if name in found}}


def _source(reference: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if reference is None:
        return None
    return {name: value for name, value in reference.items() if name != "buckets"}


def _mend(warehouse: str, identifier: Identifier, record: Verification) -> dict[str, str] | None:
    """Return the request that repairs the difference. Nothing is repaired without it."""
    if record.found.get("state") == "differs":
        action, why = "rebuild", "the mirror differs from its changes: rebuild it from them"
    elif checksums_differ(record.found):
        action = "rebuild"
        why = "the mirror differs from what batches wrote: rebuild it from its changes"
    elif record.reference is not None and record.reference["state"] == "differs":
        action, why = "resync", "the changes differ from the source: load the table again"
    else:
        return None
    return {
        "request": f"POST {_path(warehouse, identifier.namespace.levels, identifier.name)}/{action}",
        "why": why,
    }


def _path(warehouse: str, levels: Sequence[str], name: str) -> str:
    namespace = "%1F".join(quote(level, safe="") for level in levels)
    return f"/lake/v1/{quote(warehouse, safe='')}/namespaces/{namespace}/tables/{quote(name, safe='')}"
