"""The rounds of maintenance that need no Spark: a thread in every server process.

In a round, the process that holds the lease of a warehouse

1. thins its moments by the policy;
2. expires snapshots of the tables that were changed at a forgotten moment, and of some other tables;
3. deletes history rows that no kept moment needs;
4. deletes the files of expired snapshots, after the grace for readers;
5. ends the retention of dropped tables, and deletes rows about tables that are gone;
6. removes the orphans of one table.

Everything can be interrupted and repeated. A warehouse in which nothing is due is only read.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field

import orjson

from catalog.errors import CatalogError
from catalog.models import Warehouse
from catalog.names import Identifier, Namespace, namespace_from_levels
from catalog.services.catalog import Catalog
from catalog.store.history import HistoryRow
from catalog.store.moments import KeptMoments
from catalog.store.webhook_holds import held_number
from maintenance import measures
from maintenance.expire import EXPIRED_MIN, TableExpiry
from maintenance.expiry import is_kept
from maintenance.file_cleanup import Deleted, FileCleanup
from maintenance.kept_moments import KeptMomentsPolicy, kept
from maintenance.orphans import OrphanSweep
from maintenance.policies import Policies
from maintenance.row_lifetimes import RowLifetimes
from maintenance.store import ExpiredFiles, MaintenanceStore

THIN_NUMBERS_MAX = 5_000
TABLES_A_PASS = 50
ROWS_A_CHUNK = 1_000
ROWS_S_MAX = 0.5
QUEUE_ROWS_A_RUN = 500
LEASE_INTERVALS = 6
TICK_MS_MAX = 60_000

log = logging.getLogger(__name__)


class Stopped(Exception):
    """The process is stopping, or another process has the lease."""


@dataclass(frozen=True, slots=True)
class RoundSettings:
    interval_s: float = 10.0
    grace_ms: int = 3_600_000  # how long after its expiry the files of a snapshot stay, for readers

    @property
    def lease_ms(self) -> int:
        """How long other processes wait for one that does not come back."""
        return int(LEASE_INTERVALS * self.interval_s * 1000)


@dataclass(slots=True)
class _Progress:
    """What this process remembers of a warehouse. A restart only repeats some work."""

    passed: int | None = None  # expiry has covered the moments up to this number
    tables: set[tuple[str, str]] = field(default_factory=set)
    expired_ms: dict[tuple[str, str], int] = field(default_factory=dict)
    pass_after: tuple[str, str] = ("", "")
    pass_ms: int = 0
    scanned: int = 0
    swept_ms: int = 0
    cleaned_ms: dict[str, int] = field(default_factory=dict)


class Rounds:
    def __init__(
        self,
        catalog: Catalog,
        store: MaintenanceStore,
        policies: Policies,
        settings: RoundSettings,
        rows: RowLifetimes | None = None,
    ) -> None:
        self._catalog = catalog
        self._store = store
        self._policies = policies
        self._settings = settings
        self._rows = rows
        self._rows_ms = 0
        self._cleanup = FileCleanup(catalog.files)
        self._orphans = OrphanSweep(catalog, store, policies)
        self._holder = uuid.uuid4().hex
        self._progress: dict[str, _Progress] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="maintenance", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(10)

    def _run(self) -> None:
        while not self._stopping.wait(self._settings.interval_s):
            try:
                self.once()
            except Stopped:
                return
            except Exception:
                log.exception("a round of maintenance failed; the next one tries again")

    def once(self) -> None:
        """One round over all warehouses."""
        now_ms = self._catalog.now_ms()
        if self._rows is not None and now_ms - self._rows_ms >= TICK_MS_MAX:
            self._rows_ms = now_ms
            self._rows.sweep(now_ms)
        for warehouse in self._catalog.warehouses.all():
            try:
                self.maintain(warehouse)
            except CatalogError as error:
                log.warning(
                    "maintenance has to wait", extra={"warehouse": warehouse.name, "reason": error.message}
                )

    def maintain(self, warehouse: Warehouse) -> None:
        policy = self._policies.kept_moments(warehouse.name)
        now_ms = self._catalog.now_ms()
        progress = self._progress.setdefault(warehouse.name, _Progress())
        if not self._is_due(warehouse.name, policy, progress, now_ms):
            return
        until_ms = now_ms + self._settings.lease_ms
        if not self._catalog.moments.lease(warehouse.name, self._holder, now_ms, until_ms):
            return
        kept_now = self._thin(warehouse.name, policy, progress, now_ms)
        expiry = self.expiry(policy)
        tick_ms = min(TICK_MS_MAX, max(1, policy.all_ms // 10))
        self._expire_changed(warehouse.name, expiry, kept_now, progress, now_ms, tick_ms)
        self._delete_rows(warehouse.name, policy, kept_now, progress, now_ms)
        self._delete_files(warehouse, progress, now_ms, tick_ms)
        if now_ms - progress.swept_ms >= tick_ms:
            progress.swept_ms = now_ms
            self._expire_others(warehouse.name, expiry, kept_now, progress)
            self._store.end_retention(warehouse.name, now_ms)
            self._store.forget_missing_tables(warehouse.name)
            self._check()
            self._orphans.next(warehouse)

    def expiry(self, policy: KeptMomentsPolicy) -> TableExpiry:
        return TableExpiry(
            self._catalog, self._store, unused_ms=6 * policy.all_ms, grace_ms=self._settings.grace_ms
        )

    def _is_due(self, warehouse: str, policy: KeptMomentsPolicy, progress: _Progress, now_ms: int) -> bool:
        """Whether something is old enough to be forgotten, or was when this process looked last."""
        kept_now = self._catalog.moments.all(warehouse)
        newest_passed = self._catalog.history.newest_before(warehouse, now_ms - policy.all_ms)
        if newest_passed > kept_now.thinned_number:
            return True
        if progress.tables or self._store.tables_with_due_files(warehouse, now_ms):
            return True
        return bool(kept_now.listed) and now_ms - progress.swept_ms >= TICK_MS_MAX

    # -- moments

    def _thin(
        self, warehouse: str, policy: KeptMomentsPolicy, progress: _Progress, now_ms: int
    ) -> KeptMoments:
        moments = self._catalog.moments
        if progress.passed is None:
            progress.passed = moments.all(warehouse).thinned_number
        while True:
            self._check()
            before = moments.all(warehouse).thinned_number
            forgotten = moments.thin(
                warehouse,
                now_ms=now_ms,
                before_ms=now_ms - policy.all_ms,
                limit=THIN_NUMBERS_MAX,
                choose=lambda found: kept(found, policy, now_ms),
            )
            measures.moments_forgotten.inc(forgotten)
            kept_now = moments.all(warehouse)
            if kept_now.thinned_number == before:
                break
        changed = self._catalog.history.tables_between(warehouse, progress.passed, kept_now.thinned_number)
        progress.tables.update(changed)
        progress.passed = kept_now.thinned_number
        return kept_now

    # -- snapshots

    def _expire_changed(
        self,
        warehouse: str,
        expiry: TableExpiry,
        kept_now: KeptMoments,
        progress: _Progress,
        now_ms: int,
        tick_ms: int,
    ) -> None:
        """Tables that were written to at a forgotten moment, each at most once in a while."""
        due = [key for key in progress.tables if now_ms - progress.expired_ms.get(key, 0) >= tick_ms]
        for key in due:
            progress.tables.discard(key)
            progress.expired_ms[key] = now_ms
            self._expire(warehouse, expiry, key, kept_now, least=EXPIRED_MIN)
        if len(progress.expired_ms) > 10 * TABLES_A_PASS:
            progress.expired_ms = {
                key: ms for key, ms in progress.expired_ms.items() if now_ms - ms < tick_ms
            }

    def _expire_others(
        self, warehouse: str, expiry: TableExpiry, kept_now: KeptMoments, progress: _Progress
    ) -> None:
        """Some tables in the order of their names, so that tables at rest become small as well."""
        found = self._catalog.records.entries_after(warehouse, *progress.pass_after, TABLES_A_PASS)
        for entry in found:
            snapshots = orjson.loads(entry.document or b"{}").get("snapshots") or ()
            if entry.kind == "table" and len(snapshots) > 1:
                self._expire(warehouse, expiry, (entry.namespace, entry.name), kept_now, least=1)
        is_end = len(found) < TABLES_A_PASS
        progress.pass_after = ("", "") if is_end else (found[-1].namespace, found[-1].name)

    def _expire(
        self, warehouse: str, expiry: TableExpiry, key: tuple[str, str], kept_now: KeptMoments, least: int
    ) -> None:
        self._check()
        identifier = Identifier(Namespace.from_key(key[0]), key[1])
        if not self._policies.of_table(warehouse, identifier).expire:
            return
        try:
            done = expiry.expire(warehouse, identifier, kept_now, least=least)
        except CatalogError as error:  # another writer was quicker, or storage failed: the next pass tries
            log.info("not expired", extra={"table": str(identifier), "reason": error.message})
            return
        if done is not None:
            measures.snapshots_expired.inc(done.snapshots)
            log.info("expired snapshots", extra={"table": str(identifier), "snapshots": done.snapshots})

    # -- history rows

    def _delete_rows(
        self,
        warehouse: str,
        policy: KeptMomentsPolicy,
        kept_now: KeptMoments,
        progress: _Progress,
        now_ms: int,
    ) -> None:
        """Rows older than the events that readers may still fetch, which no kept moment needs."""
        history = self._catalog.history
        until = min(history.newest_before(warehouse, now_ms - 6 * policy.all_ms), kept_now.thinned_number)
        held = held_number(self._catalog.database, warehouse, now_ms)
        if held is not None:
            until = min(until, held - 1)
        numbers = kept_now.numbers
        end_s = time.monotonic() + ROWS_S_MAX
        while time.monotonic() < end_s:
            self._check()
            rows = history.scan(warehouse, progress.scanned, until, ROWS_A_CHUNK)
            gone = [
                row
                for row in rows
                if _is_unneeded(row, numbers, kept_now.thinned_number) and not self._is_link(warehouse, row)
            ]
            self._queue_metadata_files(warehouse, gone, now_ms)
            history.delete(warehouse, gone)
            measures.history_rows_deleted.inc(len(gone))
            if len(rows) < ROWS_A_CHUNK:
                progress.scanned = 0
                return
            progress.scanned = max(rows[0].number, rows[-1].number - 1)

    def _is_link(self, warehouse: str, row: HistoryRow) -> bool:
        """Whether the row leads to rows of the same table under a former name, which expiry must find."""
        former = row.detail.get("from") if row.present else None
        if former is None:
            return False
        key = namespace_from_levels(former["namespace"]).key
        earlier = self._catalog.history.rows_of(warehouse, key, former["name"])
        return any(uuid_ == row.uuid and number < row.number for number, _, uuid_, _ in earlier)

    def _queue_metadata_files(self, warehouse: str, gone: Iterable[HistoryRow], now_ms: int) -> None:
        by_table: dict[str, list[str]] = {}
        for row in gone:
            # A table that deletes its old metadata files itself has its properties in the detail.
            if row.kind == "table" and row.metadata_location and "properties" not in row.detail:
                by_table.setdefault(row.uuid, []).append(row.metadata_location)
        for table_uuid, locations in by_table.items():
            due_ms = now_ms + self._settings.grace_ms
            self._store.add_files(warehouse, table_uuid, due_ms, ExpiredFiles(metadata_files=locations))

    # -- files

    def _delete_files(self, warehouse: Warehouse, progress: _Progress, now_ms: int, tick_ms: int) -> None:
        for table_uuid in self._store.tables_with_due_files(warehouse.name, now_ms):
            if now_ms - progress.cleaned_ms.get(table_uuid, 0) < tick_ms:
                continue
            progress.cleaned_ms[table_uuid] = now_ms
            self.delete_files(warehouse, table_uuid, now_ms)
        if len(progress.cleaned_ms) > 10 * TABLES_A_PASS:
            progress.cleaned_ms.clear()

    def delete_files(self, warehouse: Warehouse, table_uuid: str, now_ms: int) -> Deleted:
        """Delete the files of expired snapshots of one table that are due."""
        total = Deleted()
        while queued := self._store.due_files(warehouse.name, table_uuid, now_ms, QUEUE_ROWS_A_RUN):
            document = self._catalog.entries.by_uuid(warehouse.name, table_uuid)
            if document is None:
                return total  # purged, or about to be; the rows are deleted with those of the table
            candidates = [files for _, files in queued]
            metadata_files = [path for files in candidates for path in files.metadata_files]
            in_use = self._store.metadata_files_in_use(warehouse.name, metadata_files)
            try:
                done = self._cleanup.run(
                    orjson.loads(document),
                    warehouse.root,
                    candidates,
                    protected=frozenset(in_use),
                    check=self._check,
                )
            except (CatalogError, ValueError) as error:  # ValueError: a manifest is not Avro
                log.warning(
                    "files of expired snapshots stay for now",
                    extra={"warehouse": warehouse.name, "uuid": table_uuid, "reason": str(error)},
                )
                return total
            self._store.delete_files([id_ for id_, _ in queued])
            measures.files_deleted.inc(done.total)
            total = Deleted(*(getattr(total, n) + getattr(done, n) for n in Deleted.__slots__))
            if len(queued) < QUEUE_ROWS_A_RUN:
                break
        return total

    def _check(self) -> None:
        if self._stopping.is_set():
            raise Stopped


def _is_unneeded(row: HistoryRow, numbers: list[int], thinned_number: int) -> bool:
    if not row.present and row.is_first:
        return True  # before it the name did not exist, and after it neither
    return not is_kept(row.number, row.next_number, numbers, thinned_number)
