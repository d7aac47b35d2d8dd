"""Choose the table groups that are due, and the journal ids at which their next batch begins and ends.

Tables that share source transactions form a table group and are published together. A group is due when
enough changes are pending, or when the oldest has waited long enough. While a worker is busy, its next batch
grows: a slow merge makes batches larger, and the lag stays bounded.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ingest.change import TableName
from ingest.journal.encoded_request import has_source
from ingest.journal.journal import Journal
from ingest.journal.receipts import Pending
from ingest.journal.table_groups import components
from ingest.landing.holds import limits
from ingest.settings import Thresholds
from ingest.sources.store import Pauses
from ingest.staging.context import BatchRange
from ingest.store.jobs import Jobs
from ingest.store.resyncs import Resync
from ingest.store.tables import LandingTables


@dataclass(frozen=True, slots=True)
class PendingGroup:
    tables: tuple[TableName, ...]
    events: int
    stored_bytes: int
    oldest_ms: int
    flush_requested: bool  # a flush was requested

    def is_due(self, thresholds: Thresholds, now_ms: int) -> bool:
        return (
            self.flush_requested
            or self.events >= thresholds.events
            or self.stored_bytes >= thresholds.stored_bytes
            or now_ms - self.oldest_ms >= thresholds.freshness_ms
        )


def pending_groups(
    waiting: Iterable[Pending],
    groups: Iterable[frozenset[TableName]],
    flush_requested: Mapping[TableName, int],
    landed: Mapping[TableName, int],
) -> list[PendingGroup]:
    """Return the table groups that have something to land, the one that has waited longest first."""
    leader = {table: min(group) for group in groups for table in group}
    gathered: dict[TableName, list[Pending]] = {}
    for row in waiting:
        if row.last_id > landed.get(row.table, 0):
            gathered.setdefault(leader.get(row.table, row.table), []).append(row)
    found = [
        PendingGroup(
            tables=tuple(sorted(row.table for row in rows)),
            events=sum(row.events for row in rows),
            stored_bytes=sum(row.stored_bytes for row in rows),
            oldest_ms=min(row.oldest_ms for row in rows),
            flush_requested=any(flush_requested.get(row.table, 0) > landed.get(row.table, 0) for row in rows),
        )
        for rows in gathered.values()
    ]
    return sorted(found, key=lambda group: (group.oldest_ms, group.tables))


def choose(
    found: Sequence[PendingGroup],
    busy: Collection[TableName],
    thresholds: Thresholds,
    now_ms: int,
    alone: Collection[TableName] = (),
) -> tuple[PendingGroup, ...]:
    """Return the table groups of the next job; none if none is due.

    Small groups share a job, due or not, because each publish has a fixed cost. A large group gets its own
    job, so that small ones do not wait for it. A group with a table in `alone` also gets its own job: its
    last job failed, and it must not make another fail.
    """
    free = [group for group in found if not _is_any(group, busy)]
    first = next((group for group in free if group.is_due(thresholds, now_ms)), None)
    if first is None:
        return ()
    if first.events > thresholds.small_events or _is_any(first, alone):
        return (first,)
    chosen, tables = [first], len(first.tables)
    for group in free:
        if group is first:
            continue
        is_small = group.events <= thresholds.small_events and not _is_any(group, alone)
        if is_small and tables + len(group.tables) <= thresholds.tables_max:
            chosen.append(group)
            tables += len(group.tables)
    return tuple(chosen)


def _is_any(group: PendingGroup, tables: Collection[TableName]) -> bool:
    return any(table in tables for table in group.tables)


def wait_ms(found: Sequence[PendingGroup], thresholds: Thresholds, now_ms: int) -> int | None:
    """Return how long until the first group is due; None if nothing waits."""
    if not found:
        return None
    return max(0, min(group.oldest_ms for group in found) + thresholds.freshness_ms - now_ms)


# -- cutting batches

STAGING_LEASE_S = 20.0  # extended while the files are written; after a crash its tables wait this long
BACK_OFF_S_MAX = 10.0
WRITE_PUT_OFF_S_MAX = 60.0  # each attempt costs a Spark job
JOB_MS, JOB_SHARE = 500.0, 0.2  # the assumed duration before the first job, and the weight of each new one
BUSY_S = 0.25  # the waiting tables are in jobs: the end of a job wakes the requests that wait for the next
PRESTAGED_EVENTS_MAX = 50_000  # a prestaged batch delays other tables for no longer than this takes


class BatchCutter:
    """Cuts batches from the newest rows of the journal.

    A requested flush is kept in this process only. Every replica that receives the request also cuts, and
    after a restart the freshness target applies.
    """

    def __init__(
        self,
        journal: Journal,
        tables: LandingTables,
        jobs: Jobs,
        thresholds: Thresholds,
        pauses: Callable[[str], Pauses] | None = None,
        resyncs: Callable[[str], Mapping[TableName, Resync]] | None = None,
    ) -> None:
        self._journal = journal
        self._pauses = pauses
        self._resyncs = resyncs
        self._tables = tables
        self._jobs = jobs
        self._given = thresholds
        self._flush_requested: dict[tuple[str, TableName], int] = {}
        # failures, and the time until which it waits
        self._backing_off: dict[tuple[str, TableName], tuple[int, float]] = {}
        self._lock = threading.Lock()
        self._job_ms = JOB_MS  # recent time from the cut of a batch to its publish
        self.next_due_s: dict[str, float] = {}  # when the first free group of a warehouse is due, if known

    @property
    def thresholds(self) -> Thresholds:
        """Return the thresholds with which a batch is cut early enough to be visible in time, by recent
        durations.
        """
        left_ms = max(0, self._given.freshness_ms - round(self._job_ms))
        return replace(self._given, freshness_ms=left_ms)

    def record_duration(self, job_ms: float) -> None:
        """Record the time from the cut of a batch to its publish."""
        self._job_ms += JOB_SHARE * (job_ms - self._job_ms)

    def request_flush(self, warehouse: str, tables: Collection[TableName] | None) -> None:
        """Cut what is pending as soon as a worker requests a job."""
        for row in self._journal.pending(warehouse):
            if tables is None or row.table in tables:
                with self._lock:
                    self._flush_requested[warehouse, row.table] = row.last_id

    def waiting(self, warehouse: str, limited: Mapping[TableName, int] | None = None) -> list[PendingGroup]:
        """Return the groups, without changes that must wait. `limited` is the result of `limits`."""
        landed = self._landed(warehouse)
        if limited is None:
            limited = self.limits(warehouse)
        pending = [
            row
            for row in self._journal.pending(warehouse)
            if self._may_land(warehouse, row.table, landed, limited)
        ]
        with self._lock:
            flush_requested = {
                table: last for (where, table), last in self._flush_requested.items() if where == warehouse
            }
            for table, last in flush_requested.items():
                if landed.get(table, 0) >= last:
                    del self._flush_requested[warehouse, table]
        spans = self._journal.shared_spans(warehouse) if limited else self._journal.groups(warehouse)
        shared = [
            one.tables
            for one in spans
            if any(landed.get(table, 0) < one.last_id for table in one.tables)
            and all(limited.get(table, one.last_id) >= one.last_id for table in one.tables)
        ]
        return pending_groups(pending, components(shared), flush_requested, landed)

    def limits(self, warehouse: str) -> dict[TableName, int]:
        """Return how far each table may land that is paused, in a resync, or could not be staged a moment
        ago, or that shares source transactions with such a table; others have no limit.
        """
        rows = self._tables.all(warehouse)
        landed = {table: row.landed_id for table, row in rows.items()}
        held = self._before_resyncs(warehouse, landed)
        held |= {table: landed.get(table, 0) for table in self._still_backing_off(warehouse)}
        held |= {table: row.landed_id for table, row in rows.items() if row.rebuild is not None}
        if self._pauses is not None:
            paused = self._pauses(warehouse)
            held |= {table: landed.get(table, 0) for table in paused.tables}
            if paused.sources:
                for table, names, first_id, _ in self._journal.pending_by_sources(warehouse):
                    if any(has_source(names, source) for source in paused.sources):
                        held[table] = min(held.get(table, first_id - 1), first_id - 1)
        return limits(held, self._journal.shared_spans(warehouse)) if held else {}

    def _before_resyncs(self, warehouse: str, landed: Mapping[TableName, int]) -> dict[TableName, int]:
        """Return the limits of tables in a resync: earlier changes land before it, and its own changes wait
        for its end.
        """
        found = {}
        for table, resync in self._running(warehouse).items():
            first = self._journal.first_after(warehouse, table, landed.get(table, 0))
            if resync.state == "open" or (first is not None and first <= resync.begin_id):
                found[table] = resync.begin_id
        return found

    def _running(self, warehouse: str) -> Mapping[TableName, Resync]:
        return self._resyncs(warehouse) if self._resyncs is not None else {}

    def _landed(self, warehouse: str) -> dict[TableName, int]:
        return {table: row.landed_id for table, row in self._tables.all(warehouse).items()}

    def _may_land(
        self,
        warehouse: str,
        table: TableName,
        landed: Mapping[TableName, int],
        limited: Mapping[TableName, int],
    ) -> bool:
        """Return whether a table has something to land within its limit."""
        if table not in limited:
            return True
        first = self._journal.first_after(warehouse, table, landed.get(table, 0))
        return first is not None and first <= limited[table]

    def wait_ms(self, warehouse: str) -> int | None:
        return wait_ms(self.waiting(warehouse), self.thresholds, _now_ms())

    def cut(self, warehouse: str, worker: str) -> BatchRange | None:
        """Claim the next batch. None if nothing is due or another process claimed it first.

        The head is read before the tables. Nothing after it is cut, so each source transaction in the batch
        has all its tables in the group. A transaction that arrives after the head was read is left whole.
        """
        head = self._journal.head(warehouse)
        limited = self.limits(warehouse)
        found = self.waiting(warehouse, limited)
        busy = self._jobs.claimed(warehouse)
        failed = self._failed(warehouse)
        blocked: set[TableName] = set()  # by an open source transaction: the other tables go on
        self.next_due_s.pop(warehouse, None)
        while chosen := choose(found, busy | blocked, self.thresholds, _now_ms(), failed):
            tables = [table for group in chosen for table in group.tables]
            landed = self._landed_of(warehouse, tables)
            ranges = self._all_ranges(warehouse, chosen, landed, limited, head)
            if not ranges:
                blocked.update(tables)
                continue
            job_id = uuid.uuid4().hex
            if not self._jobs.begin(job_id, warehouse, worker, tables, STAGING_LEASE_S):
                return None
            # Read again: the job that had these tables before may have landed meanwhile.
            landed_now = self._landed_of(warehouse, tables)
            if landed_now != landed:
                ranges = self._all_ranges(warehouse, chosen, landed_now, limited, head)
            if ranges:
                return BatchRange(job_id, warehouse, ranges)
            self._jobs.forget(job_id, 1)
            return None
        if found and not blocked:  # a transaction may end at any time: then the next append wakes this
            free = [group for group in found if busy.isdisjoint(group.tables)]
            left_ms = wait_ms(free, self.thresholds, _now_ms())
            due_in_s = BUSY_S if left_ms is None else left_ms / 1000
            self.next_due_s[warehouse] = time.monotonic() + due_in_s
        return None

    def _landed_of(self, warehouse: str, tables: Collection[TableName]) -> dict[TableName, int]:
        return {table: row.landed_id for table, row in self._tables.some(warehouse, tables).items()}

    def _all_ranges(
        self,
        warehouse: str,
        groups: Iterable[PendingGroup],
        landed: Mapping[TableName, int],
        limited: Mapping[TableName, int],
        head: int,
    ) -> dict[TableName, tuple[int, int]]:
        enough = self.thresholds
        ranges: dict[TableName, tuple[int, int]] = {}
        for group in groups:
            up_to = _within(head, group, limited)
            ranges |= self._ranges(
                warehouse, group, landed, up_to, enough.batch_events_max, enough.batch_bytes_max
            )
        return ranges

    def cut_next(self, warehouse: str, after: Mapping[TableName, int]) -> BatchRange | None:
        """Return what waits after a batch that is being landed, up to `after`, once it is enough for its own
        batch. Claims nothing. The head is read first, as in `cut`.
        """
        enough, head = self.thresholds, self._journal.head(warehouse)
        limited = self.limits(warehouse)
        for group in self.waiting(warehouse, limited):
            starts = {table: after[table] for table in group.tables if table in after}
            if len(starts) < len(group.tables):
                continue
            events, stored_bytes = self._journal.size(warehouse, starts, head)
            if events < enough.events and stored_bytes < enough.stored_bytes:
                continue
            events_max = min(PRESTAGED_EVENTS_MAX, enough.batch_events_max)
            up_to = _within(head, group, limited)
            ranges = self._ranges(warehouse, group, starts, up_to, events_max, enough.batch_bytes_max)
            if ranges.keys() == starts.keys():
                return BatchRange(uuid.uuid4().hex, warehouse, ranges)
        return None

    def back_off(
        self, batch_range: BatchRange, only: TableName | None = None, rest_s_max: float = BACK_OFF_S_MAX
    ) -> None:
        """Record that these tables could not be staged or written. Others go first for a while, longer each
        time, and until these have landed, each of their groups gets its own job.
        """
        for table in batch_range.ranges if only is None else (only,):
            times = self._backing_off.get((batch_range.warehouse, table), (0, 0.0))[0] + 1
            rest_s = min(rest_s_max, 0.25 * 2 ** min(times, 16))
            self._backing_off[batch_range.warehouse, table] = (times, time.monotonic() + rest_s)

    def landed(self, warehouse: str, tables: Iterable[TableName]) -> None:
        for table in tables:
            self._backing_off.pop((warehouse, table), None)

    def _failed(self, warehouse: str) -> set[TableName]:
        return {table for where, table in list(self._backing_off) if where == warehouse}

    def _still_backing_off(self, warehouse: str) -> set[TableName]:
        now_s = time.monotonic()
        back_off = list(self._backing_off.items())
        return {t for (where, t), (_, until) in back_off if where == warehouse and until > now_s}

    def _ranges(
        self,
        warehouse: str,
        group: PendingGroup,
        landed: Mapping[TableName, int],
        head: int,
        events_max: int,
        bytes_max: int,
    ) -> dict[TableName, tuple[int, int]]:
        """Return the range of each table. Empty if an open source transaction is in the way, or one that ends
        after the head: it may contain a table that is not in the group.
        """
        after = {table: landed[table] for table in group.tables}
        up_to = self._journal.reach(warehouse, after, head, events_max=events_max, bytes_max=bytes_max)
        # A resync that has ended is landed as a whole.
        whole = [
            (resync.begin_id + 1, resync.end_id - 1)
            for table, resync in self._running(warehouse).items()
            if table in after and resync.end_id is not None
        ]
        border = self._journal.border(warehouse, group.tables, after, up_to, _now_ms(), whole)
        if border <= min(after.values()) and up_to < head:
            # A source transaction that is larger than a batch is landed as a whole.
            border = self._journal.border(warehouse, group.tables, after, head, _now_ms(), whole)
        if border > head:
            return {}
        return {table: (start, border) for table, start in after.items() if border > start}


def _within(head: int, group: PendingGroup, limited: Mapping[TableName, int]) -> int:
    return min([head, *(limited[table] for table in group.tables if table in limited)])


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
