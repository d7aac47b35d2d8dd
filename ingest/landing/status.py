"""The status of landing: what is visible, what is pending, which workers are alive.

A worker's row is written when it requests a job. A supervisor is the process that starts a worker beside a
server; its row names that worker and the reason why it does not run, if there is one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import orjson

from catalog.names import Namespace
from catalog.services.catalog import Catalog, CurrentState
from ingest.change import TableName
from ingest.identity import Key, current_schema, reasoned_key
from ingest.journal.journal import Journal
from ingest.journal.receipts import Pending
from ingest.landing.batches import BatchCutter
from ingest.landing.job_service import JobService
from ingest.sources.store import Pause, Pauses
from ingest.store.jobs import Jobs
from ingest.store.mirrors import Mirror, Mirrors
from ingest.store.resyncs import Resync, Resyncs
from ingest.store.tables import LandedTable, LandingTables

GONE_MS = 60_000
OK = "ok"
READY = "starting: the worker is ready, and has not asked for work yet"
NO_WORKER = "not running: no worker has asked for work in the last minute, start one with `calve worker`"
_SUPERVISOR = "supervisor "

Row = tuple[str, int, dict[str, Any]]  # name, last seen in ms, facts


def supervisor_row(origin: str, worker: str | None, reason: str | None) -> tuple[str, dict[str, Any]]:
    """Return the name and the content of a supervisor's row; `origin` identifies the supervisor."""
    return f"{_SUPERVISOR}{origin}", {"worker": worker, "reason": reason}


def shown_workers(rows: Iterable[Row], now_ms: int) -> list[dict[str, Any]]:
    """Return the workers of the last minutes, as /status shows them."""
    rows = list(rows)
    ended = {about.get("worker") for about in _supervisors(rows, now_ms) if about.get("reason")}
    return [
        {"worker": name, "seen-ms": seen, "alive": now_ms - seen < GONE_MS and name not in ended, **about}
        for name, seen, about in rows
        if not name.startswith(_SUPERVISOR)
    ]


def worker_state(rows: Iterable[Row], now_ms: int) -> str:
    """Return `ok` if a worker runs, else why none does and what to do."""
    rows = list(rows)
    if any(worker["alive"] for worker in shown_workers(rows, now_ms)):
        return OK
    supervisors = _supervisors(rows, now_ms)
    reasons = [about["reason"] for about in supervisors if about.get("reason")]
    if reasons:
        return str(reasons[0])
    # Its supervisor reports that the worker is ready; its first request for a job is about to arrive.
    return READY if any(about.get("worker") for about in supervisors) else NO_WORKER


def _supervisors(rows: list[Row], now_ms: int) -> list[dict[str, Any]]:
    """Return the reports of supervisors in the last minute; one with a reason repeats it."""
    recent = [row for row in rows if row[0].startswith(_SUPERVISOR) and abs(now_ms - row[1]) < GONE_MS]
    return [about for _, _, about in sorted(recent, key=lambda row: -row[1])]


# -- status


class LandingStatus:
    """Queries the database each time, so its methods may block: call them in threads, not on the event loop.

    They raise `Unavailable` if the database does not respond.
    """

    def __init__(
        self,
        catalog: Catalog,
        journal: Journal,
        tables: LandingTables,
        jobs: Jobs,
        cutter: BatchCutter,
        job_service: JobService,
        pauses: Callable[[str], Pauses] | None = None,
    ) -> None:
        self._pauses = pauses
        self.verification: Callable[[str], Mapping[TableName, dict[str, Any]]] | None = None
        self._catalog = catalog
        self._mirrors = Mirrors(catalog.database)
        self._journal = journal
        self._tables = tables
        self._jobs = jobs
        self._cutter = cutter
        self._job_service = job_service

    def landed(self, warehouse: str, tables: Collection[TableName]) -> dict[TableName, int]:
        """Return the journal id up to which each table is visible; 0 if nothing ever landed.

        Every change and every dead letter of the table up to that id is in a snapshot that all engines see.
        The id never decreases. It may be smaller than the journal's head if nothing of the table is pending.
        """
        return {table: row.landed_id for table, row in self._tables.some(warehouse, tables).items()}

    def rows(self, warehouse: str, tables: Collection[TableName]) -> Mapping[TableName, LandedTable]:
        """Return the newest publish of each table."""
        return self._tables.some(warehouse, tables)

    def waiting_up_to(self, warehouse: str, journal_id: int) -> list[TableName]:
        """Return tables with changes at or below this id that are not visible yet."""
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
        """Cut what is pending now, of these tables or of all; returns at once."""
        self._cutter.request_flush(warehouse, tables)
        self._job_service.wakeup.wake()

    def explain_table(self, warehouse: str, table: TableName) -> dict[str, Any]:
        """Return the settings, and, if they are known, the schema and the key by which rows were landed. The
        table need not exist yet.
        """
        landed = self._tables.one(warehouse, table)
        settings = landed.settings
        state = CurrentState(
            self._catalog.database, self._catalog.entries, warehouse, self._catalog.documents
        )
        entry = state.load(Namespace(tuple(table[:-1])).key, table[-1])
        exists = entry is not None and entry.kind == "table"
        schema = current_schema(orjson.loads(entry.document or b"{}")) if exists and entry else None
        known = Key(landed.known_key, landed.key_reason) if exists else None
        key = reasoned_key(settings.key, schema, (), known).columns
        return {
            "schema": schema,
            "key": list(key) or None,
            "known-key": known,
            "settings": settings.as_json(),
        }

    def status(self, warehouse: str) -> dict[str, Any]:
        """Return jobs, workers, watermarks, lag and dead letters, as JSON."""
        now_ms = time.time_ns() // 1_000_000
        rows = self._tables.all(warehouse)
        pending = {row.table: row for row in self._journal.pending(warehouse)}
        marks: dict[TableName, dict[str, Any]] = {}
        for mark in self._tables.watermarks(warehouse):
            shown = {"position": mark.position, "time-ms": mark.time_ms, "updated-ms": mark.updated_ms}
            marks.setdefault(mark.table, {})[mark.source] = shown
        mirrors = self._mirrors.all(warehouse)
        given_up = {
            table: f"the mirror could not be rebuilt: {mirror.rebuild_error}"
            for table, mirror in mirrors.items()
            if mirror.rebuild is not None and mirror.rebuild_error is not None
        }
        # Changes that were waiting may have landed through another server meanwhile.
        failed = {
            table: why
            for table, why in {**self._job_service.staging_error(warehouse), **given_up}.items()
            if table in pending
        }
        staging_error = [failed[table] for table in sorted(failed)]
        paused = self._pauses(warehouse) if self._pauses is not None else Pauses({}, {})
        limited = self._cutter.limits(warehouse)
        resyncs = Resyncs(self._catalog.database).all(warehouse)
        newest = self._jobs.newest(warehouse, 50)
        verified = self.verification(warehouse) if self.verification is not None else {}
        written = _written(newest)
        converting = _converting(newest)
        tables = {
            ".".join(table) or "(no table)": {
                **_landed(rows.get(table)),
                **written.get(".".join(table), {}),
                **_waiting(pending.get(table), rows.get(table), now_ms),
                **_mirror(mirrors.get(table)),
                "watermarks": marks.get(table, {}),
                **({"stalled": failed[table]} if table in failed else {}),
                **({"verification": verified[table]} if table in verified else {}),
                **converting.get(".".join(table), {}),
                **_held(table, paused, limited, pending.get(table), resyncs.get(table)),
            }
            for table in sorted({*rows, *pending, *paused.tables})
        }
        jobs = [job for job in newest if job["state"] != "done"]
        workers = self._jobs.workers()
        worker = worker_state(workers, now_ms)
        published = [row.commit_us // 1000 for row in rows.values() if row.number is not None]
        wait_ms = self._cutter.wait_ms(warehouse)
        return {
            "tables": tables,
            "lag-ms": max((shown["lag-ms"] for shown in tables.values()), default=0),
            "jobs": [{**job, "progress": orjson.loads(job["progress"])} for job in jobs],
            "workers": shown_workers(workers, now_ms),
            "worker": worker,
            "last-publish-ms": max(published, default=None),
            "next-cut-ms": now_ms + wait_ms if wait_ms is not None else None,
            "stalled": self._stalled(worker, bool(pending), staging_error, jobs),
            "paused": {
                "sources": {name: _paused(pause) for name, pause in sorted(paused.sources.items())},
                "tables": {".".join(name): _paused(pause) for name, pause in sorted(paused.tables.items())},
            },
            "dead-letters": {
                ".".join(table) or "(no table)": counts
                for table, counts in self._journal.dead_letters.counts(warehouse).items()
            },
        }

    def readiness(self) -> dict[str, str]:
        """Return whether a worker lands changes. Without one they are still accepted and stored."""
        return {"worker": worker_state(self._jobs.workers(), time.time_ns() // 1_000_000)}

    def _stalled(
        self, worker: str, waiting: bool, staging_error: list[str], jobs: list[dict[str, Any]]
    ) -> str | None:
        if staging_error:
            return f"changes cannot be landed: {staging_error[0]}"
        if waiting and worker != OK:
            return f"Spark worker {worker}"
        failing = [job for job in jobs if job["error"]]
        if failing:
            return f"a job has failed {failing[0]['attempts']} times: {failing[0]['error'][:300]}"
        return None


def _paused(pause: Pause) -> dict[str, Any]:
    return {"reason": pause.reason, "since-ms": pause.since_ms}


def _mirror(mirror: Mirror | None) -> dict[str, Any]:
    """Return the key of a mirror, doubts about it, and when and why it was rebuilt."""
    if mirror is None:
        return {}
    found: dict[str, Any] = {"key": list(mirror.key), "key-reason": mirror.key_reason}
    if mirror.doubt is not None:
        found["in-doubt"] = mirror.doubt
    if mirror.rebuild is not None or mirror.rebuild_error is not None:
        found["rebuild"] = {"why": mirror.rebuild, "error": mirror.rebuild_error}
    if mirror.rebuilt_ms is not None:
        found["rebuilt"] = {
            "why": mirror.rebuilt_why,
            "time-ms": mirror.rebuilt_ms,
            "number": mirror.rebuilt_number,
        }
    return found


def _held(
    table: TableName,
    paused: Pauses,
    limited: Mapping[TableName, int],
    pending: Pending | None,
    resync: Resync | None,
) -> dict[str, Any]:
    """Return why changes of a table wait, if they do, and its last resync."""
    if resync is not None:
        shown: dict[str, Any] = {"state": resync.state, "generation": resync.generation}
        shown |= {"changed-ms": resync.changed_ms}
        shown |= {"reason": resync.reason} if resync.reason else {}
        return {"resync": shown, **_held(table, paused, {} if resync.is_running else limited, pending, None)}
    if table in paused.tables:
        return {"paused": _paused(paused.tables[table])}
    if pending is None or pending.last_id <= limited.get(table, pending.last_id):
        return {}
    return {
        "waits": "a source, or a table of the same source transactions, is paused, in a resync, or cannot be "
        "staged"
    }


def _written(jobs: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return how each table was last written: by Spark `tasks`, or by `merge` with the reason."""
    found: dict[str, dict[str, Any]] = {}
    for job in jobs:
        tables = orjson.loads(job["progress"]).get("tables") if job["state"] == "done" else None
        for name, facts in tables.items() if isinstance(tables, dict) else ():
            if isinstance(facts, dict) and "by" in facts:
                shown = {"written-by": facts["by"]}
                found.setdefault(name, shown | ({"merge-reason": facts["why"]} if "why" in facts else {}))
    return found


def _converting(jobs: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the tables whose columns are being converted, with the progress. Their changes wait."""
    found: dict[str, dict[str, Any]] = {}
    for job in jobs:
        progress = orjson.loads(job["progress"])
        if job["state"] == "leased" and "converting" in progress:
            found[progress.pop("converting")] = {"converting": progress}
    return found


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
