"""The landing side for the API: what is visible, what waits, which workers are alive."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any

import orjson

from catalog.names import Namespace
from catalog.services.catalog import Catalog
from catalog.services.warehouse_state import CurrentState
from ingest.batches.keys import current_schema, key_of_table
from ingest.change import TableName
from ingest.jobs.dispatch import Dispatch
from ingest.jobs.lanes import Lanes
from ingest.jobs.workers import OK, shown_workers, worker_state
from ingest.journal.journal import Journal
from ingest.landing.jobs import Jobs
from ingest.landing.tables import LandedTable, LandingTables


class LandingView:
    """Implements `ingest.api.ports.Landing`. Queries the database each time."""

    def __init__(
        self,
        catalog: Catalog,
        journal: Journal,
        tables: LandingTables,
        jobs: Jobs,
        lanes: Lanes,
        dispatch: Dispatch,
    ) -> None:
        self._catalog = catalog
        self._journal = journal
        self._tables = tables
        self._jobs = jobs
        self._lanes = lanes
        self._dispatch = dispatch

    def landed(self, warehouse: str, tables: Collection[TableName]) -> dict[TableName, int]:
        return {table: row.landed_id for table, row in self._tables.some(warehouse, tables).items()}

    def rows(self, warehouse: str, tables: Collection[TableName]) -> Mapping[TableName, LandedTable]:
        return self._tables.some(warehouse, tables)

    def waiting_up_to(self, warehouse: str, journal_id: int) -> list[TableName]:
        """Tables with changes at or below this id that are not visible yet."""
        rows = self._tables.all(warehouse)
        return [
            waiting.table
            for waiting in self._journal.pending(warehouse)
            if waiting.first_id <= journal_id
            and (
                waiting.table not in rows or rows[waiting.table].landed_id < min(journal_id, waiting.last_id)
            )
        ]

    def flush(self, warehouse: str, tables: Collection[TableName] | None) -> None:
        self._lanes.hurry(warehouse, tables)

    def explain_table(self, warehouse: str, table: TableName) -> dict[str, Any]:
        """The settings, and the schema and the key where they are known. The table need not exist yet."""
        settings = self._tables.one(warehouse, table).settings
        state = CurrentState(
            self._catalog.database, self._catalog.entries, warehouse, self._catalog.documents
        )
        entry = state.load(Namespace(tuple(table[:-1])).key, table[-1])
        exists = entry is not None and entry.kind == "table"
        schema = current_schema(orjson.loads(entry.document or b"{}")) if exists and entry else None
        key = key_of_table(settings.key, schema, ())
        return {"schema": schema, "key": list(key) or None, "settings": settings.as_json()}

    def status(self, warehouse: str) -> dict[str, Any]:
        now_ms = time.time_ns() // 1_000_000
        rows = self._tables.all(warehouse)
        pending = {row.table: row for row in self._journal.pending(warehouse)}
        marks: dict[TableName, dict[str, Any]] = {}
        for mark in self._tables.watermarks(warehouse):
            shown = {"position": mark.position, "time-ms": mark.time_ms, "updated-ms": mark.updated_ms}
            marks.setdefault(mark.table, {})[mark.source] = shown
        # What waited may have been landed through another server since.
        failed = {table: why for table, why in self._dispatch.trouble(warehouse).items() if table in pending}
        trouble = [failed[table] for table in sorted(failed)]
        tables = {
            ".".join(table) or "(no table)": {
                **_landed(rows.get(table)),
                **_waiting(pending.get(table), rows.get(table), now_ms),
                "watermarks": marks.get(table, {}),
                **({"stalled": failed[table]} if table in failed else {}),
            }
            for table in sorted({*rows, *pending})
        }
        jobs = [job for job in self._jobs.newest(warehouse, 50) if job["state"] != "done"]
        workers = self._jobs.workers()
        worker = worker_state(workers, now_ms)
        published = [row.commit_us // 1000 for row in rows.values() if row.number is not None]
        wait_ms = self._lanes.wait_ms(warehouse)
        return {
            "tables": tables,
            "lag-ms": max((shown["lag-ms"] for shown in tables.values()), default=0),
            "jobs": [{**job, "progress": orjson.loads(job["progress"])} for job in jobs],
            "workers": shown_workers(workers, now_ms),
            "worker": worker,
            "last-publish-ms": max(published, default=None),
            "next-cut-ms": now_ms + wait_ms if wait_ms is not None else None,
            "stalled": self._stalled(worker, bool(pending), trouble, jobs),
            "dead-letters": {
                ".".join(table) or "(no table)": counts
                for table, counts in self._journal.dead_letters.counts(warehouse).items()
            },
        }

    def readiness(self) -> dict[str, str]:
        """Whether a worker lands changes. Without one they are still accepted and kept."""
        return {"worker": worker_state(self._jobs.workers(), time.time_ns() // 1_000_000)}

    def _stalled(
        self, worker: str, waiting: bool, trouble: list[str], jobs: list[dict[str, Any]]
    ) -> str | None:
        if trouble:
            return f"batches cannot be staged: {trouble[0]}"
        if waiting and worker != OK:
            return f"Spark worker {worker}"
        failing = [job for job in jobs if job["error"]]
        if failing:
            return f"a job has failed {failing[0]['attempts']} times: {failing[0]['error'][:300]}"
        return None


def _landed(row: LandedTable | None) -> dict[str, Any]:
    if row is None:
        return {"landed-id": 0, "number": None, "events": 0, "rejects": 0}
    return {
        "landed-id": row.landed_id,
        "number": row.number,
        "events": row.events,
        "rejects": row.rejects,
        "commit-timestamp-ms": row.commit_us // 1000,
        **({"notice": row.notice} if row.notice else {}),
    }


def _waiting(pending: Any, row: LandedTable | None, now_ms: int) -> dict[str, Any]:
    if pending is None or (row is not None and pending.last_id <= row.landed_id):
        return {"pending-events": 0, "pending-bytes": 0, "lag-ms": 0}
    return {
        "pending-events": pending.events,
        "pending-bytes": pending.stored_bytes,
        "lag-ms": max(0, now_ms - pending.oldest_ms),
    }
