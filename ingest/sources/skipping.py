"""Skip changes of a table that cannot land: they become dead letters, and later changes can land."""

from __future__ import annotations

import time
import uuid

from catalog.errors import Conflict
from ingest.change import TableName
from ingest.journal.journal import Journal
from ingest.sources.store import SourceStore
from ingest.store.tables import LandingTables

REASON = "skipped by a request: fix it if necessary, then replay"


class Skipping:
    def __init__(self, journal: Journal, tables: LandingTables, store: SourceStore) -> None:
        self._journal = journal
        self._tables = tables
        self._store = store

    def skip(self, warehouse: str, table: TableName, up_to: int | None) -> tuple[int, int]:
        """Skip changes. Returns the number of events, and the journal id up to which they were skipped.
        Conflict if the table is not paused.

        The letters are stored first and opened last. After a crash between the two, housekeeping opens or
        deletes them, depending on how far the table has landed.
        """
        from ingest.change import original_of
        from ingest.journal.dead_letters import change_as_json
        from ingest.staging.rejects import RejectedChange, dead_letters

        name = ".".join(table)
        if table not in self._store.pauses(warehouse).tables:
            raise Conflict(f"{name} is not paused: pause it first, then skip")
        landed_id = self._tables.one(warehouse, table).landed_id
        first = self._journal.first_after(warehouse, table, landed_id)
        until = min(up_to or first or 0, self._journal.head(warehouse))
        if first is None or until < first:
            return 0, landed_id
        refused = [
            RejectedChange(
                entry.id,
                ordinal,
                REASON,
                "skipped",
                original_of(change_as_json(change)),
                change.source,
                change.position,
                change,
            )
            for entry in self._journal.read(warehouse, table, landed_id, until)
            for ordinal, change in enumerate(entry.changes)
        ]
        refused += [
            RejectedChange(
                entry.id,
                -1 - number,
                reject.reason,
                reject.code,
                reject.original,
                reject.source,
                reject.position,
                None,
                reject.context,
            )
            for entry in self._journal.read(warehouse, table, landed_id, until)
            for number, reject in enumerate(entry.rejects)
        ]
        job_id = f"skip-{uuid.uuid4().hex}"
        now_ms = time.time_ns() // 1_000_000
        self._journal.dead_letters.add(dead_letters((warehouse, job_id), table, refused, (), now_ms))
        if not self._tables.skip(warehouse, table, landed_id, until):
            self._journal.dead_letters.discard(job_id)
            raise Conflict(f"a batch of {name} is being landed: wait until it is published, then skip")
        self._journal.open_letters(job_id, warehouse, {table: until})
        self._journal.trim(warehouse, {table: until})
        return len(refused), until
