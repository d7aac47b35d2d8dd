"""Resync of a table: the source sends all rows again, and rows that the source no longer has are deleted."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from catalog.errors import Conflict, NoSuchTable
from ingest.change import Change, ParsedRequest, TableName
from ingest.journal.journal import Journal
from ingest.landing.status import LandingStatus
from ingest.staging.generation import mark_read, marker
from ingest.store.resyncs import Resync, Resyncs

_log = logging.getLogger(__name__)

FULL_LEVEL = 0.8  # of the journal: normal requests are refused a little above it
_MODES = ("mirror+changes", "mirror")


class ResyncService:
    def __init__(
        self, journal: Journal, resyncs: Resyncs, status: LandingStatus, *, lifetime_s: float
    ) -> None:
        self._journal = journal
        self._resyncs = resyncs
        self._status = status
        self._lifetime_ms = int(lifetime_s * 1000)

    def begin(self, warehouse: str, table: TableName) -> Resync:
        """Begin a resync: from now on, the changes of the table wait for its end. Conflict if a resync cannot
        work.
        """
        self._require_mirror(warehouse, table)
        resync = self._resyncs.begin(warehouse, table, self._journal.head(warehouse))
        # A batch that was cut before the row above became visible ends at or before this id.
        self._resyncs.begin_later(warehouse, resync, self._journal.head(warehouse))
        return self._resyncs.known(warehouse, table)

    def end(self, warehouse: str, table: TableName) -> Resync:
        """End a resync after all rows have been acknowledged. May be repeated."""
        resync = self._resyncs.known(warehouse, table)
        if resync.state == "open":
            request = ParsedRequest("resync", 1, [marker(resync, table)])
            receipt = self._journal.submit(warehouse, request, priority=0).result()
            self._resyncs.end(warehouse, resync, receipt.head)
            self._status.flush(warehouse, {table})
            resync = self._resyncs.known(warehouse, table)
        if resync.state in ("aborted", "expired"):
            raise Conflict(
                f"the resync of {'.'.join(table)} was given up: {resync.reason}; begin another one"
            )
        return resync

    def abort(self, warehouse: str, table: TableName) -> Resync:
        """Abort a resync: the changes that waited land as if there had been none. Conflict if it has been
        published.
        """
        resync = self._resyncs.known(warehouse, table)
        self._resyncs.give_up(warehouse, resync, "aborted", "it was aborted by a request")
        found = self._resyncs.known(warehouse, table)
        if found.state == "published":
            raise Conflict(f"the resync of {'.'.join(table)} has been published: it cannot be aborted")
        return found

    def load(self, warehouse: str, table: TableName) -> Resync:
        """Return the last resync of the table."""
        return self._resyncs.known(warehouse, table)

    def progress(self, warehouse: str, resync: Resync) -> tuple[int, int]:
        """Return the events and bytes that wait for the end."""
        if not resync.is_running:
            return 0, 0
        head = self._journal.head(warehouse)
        return self._journal.size(warehouse, {resync.table: resync.begin_id}, head)

    def mark(self, warehouse: str, changes: Sequence[Change]) -> None:
        """Give rows of a load that belong to an open resync their own identity."""
        running = self._resyncs.running(warehouse)
        for change in changes if running else ():
            resync = running.get(change.table)
            if resync is not None:
                mark_read(change, resync.generation)

    def loaded(self, warehouse: str, tables: Collection[TableName]) -> None:
        """End the resyncs of tables whose last row a producer has announced."""
        running = self._resyncs.running(warehouse)
        for table in tables:
            if table in running and running[table].state == "open":
                self.end(warehouse, table)

    def expire(self, warehouse: str, now_ms: int) -> None:
        """Expire resyncs that take too long, or that fill the journal."""
        for table, resync in self._resyncs.running(warehouse).items():
            if resync.state != "open":
                continue
            reason = None
            if now_ms - resync.began_ms > self._lifetime_ms:
                reason = f"it was not ended within {self._lifetime_ms // 1000} s (`resync_timeout_s`)"
            elif self._journal.buffer_usage().level >= FULL_LEVEL:
                reason = "the journal is nearly full: raise `buffer_bytes_max`, and begin again"
            if reason is not None and self._resyncs.give_up(warehouse, resync, "expired", reason, ("open",)):
                _log.warning(
                    "a resync was given up",
                    extra={"warehouse": warehouse, "table": ".".join(table), "reason": reason},
                )

    def forget_old(self, now_ms: int) -> None:
        self._resyncs.forget_old(now_ms)

    def _require_mirror(self, warehouse: str, table: TableName) -> None:
        found, name = self._status.explain_table(warehouse, table), ".".join(table)
        if found["schema"] is None:
            raise NoSuchTable(f"Table does not exist: {name}. Its first load needs no resync")
        if found["settings"]["mode"] not in _MODES or found["key"] is None:
            raise Conflict(
                f"{name} has no mirror with a key, so its rows cannot be replaced: set a key first"
            )
        if found["settings"]["deletes"] == "soft":
            raise Conflict(f"{name} keeps deleted rows: set deletes to hard for the resync")
