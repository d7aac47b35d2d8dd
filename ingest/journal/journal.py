"""The journal of changes. A receipt means that the changes are durable, and each is stored once.

    journal = Journal(database, JournalLimits())
    receipt = journal.submit("main", parsed).result()

Ids number the requests of a warehouse in commit order, without gaps; all entries of one request have one id.
Entries that have landed are trimmed. Any number of processes may use one database at a time.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future

import sqlalchemy as sa

from catalog.errors import TooLarge
from catalog.store.database import Database
from ingest.change import ParsedRequest, TableName
from ingest.journal import schema, table_groups
from ingest.journal.dead_letters import DeadLetters
from ingest.journal.encoded_request import bound_of, encode_request
from ingest.journal.entries import (
    batch_end,
    newest_id,
    open_letters,
    pending_by_sources,
    pending_tables,
    pending_totals,
    read_entries,
    size_between,
    trim_entries,
    trimmed_to,
    warehouses,
)
from ingest.journal.epochs import SourceState
from ingest.journal.expiry import expire, forget_warehouse
from ingest.journal.group_commit import Appender, GroupCommit, GroupResult, now_ms
from ingest.journal.receipts import AppendReceipt, BufferUsage, JournalEntry, JournalFull, Pending
from ingest.journal.source_control import all_states, change_state, load_state
from ingest.journal.table_groups import ForbiddenRange, SharedSpan, cut_point, first_after
from ingest.settings import JournalLimits

USAGE_AGE_S_MAX = 0.25  # other processes append and trim too
FULL_AGE_S_MAX = 0.02  # the figure must be this fresh before a request is refused
NEARLY_FULL = 0.8  # fraction of the bytes at which requests of the usual priority are refused


_IDENTITY = sa.select(schema.identity.c.id)


class Journal:
    def __init__(
        self, database: Database, limits: JournalLimits | None = None, *, clock: Callable[[], int] = now_ms
    ) -> None:
        schema.tune(database)
        self.limits = limits or JournalLimits()
        self.dead_letters = DeadLetters(database, clock)
        self._database = database
        self._clock = clock
        self._group_commit = GroupCommit(Appender(database, self.limits), self.limits, clock, self._note)
        self._reading = threading.Lock()
        self._pending = (0, 0)  # events and bytes, as far as this process knows
        self._read_s = float("-inf")
        self.on_append: Callable[[], None] = lambda: None  # called after each COMMIT

    # -- append

    def submit(self, warehouse: str, parsed: ParsedRequest, *, priority: int = 1) -> Future[AppendReceipt]:
        """Append a request; the future is done after COMMIT.

        Raised here, or set in the future: JournalFull (nothing stored, try later), TooLarge, Invalid and
        Conflict (nothing stored, and a repeat is refused too), Unavailable (certainly nothing stored),
        CommitStateUnknown (send it again to find out).
        """
        encoded = encode_request(warehouse, parsed, priority=priority, deduplicate=self.limits.deduplicate)
        bound = bound_of(self.limits, priority)
        if encoded.stored_bytes > bound:
            raise TooLarge(
                f"the request takes {encoded.stored_bytes} bytes in the journal; it may take {bound}"
            )
        if encoded.entries:
            self._require_capacity(encoded.stored_bytes, bound)
        return self._group_commit.submit(encoded)

    def _require_capacity(self, stored_bytes: int, bound: int) -> None:
        queued = self._group_commit.queued_bytes
        if queued + stored_bytes > self.limits.queue_bytes_max and queued:
            raise JournalFull(self.buffer_usage().level)
        if self._read_usage(USAGE_AGE_S_MAX)[1] + queued + stored_bytes > bound:
            pending_bytes = self._read_usage(FULL_AGE_S_MAX)[1]
            if pending_bytes + queued + stored_bytes > bound:
                raise JournalFull(pending_bytes / self.limits.bytes_max)

    def buffer_usage(self) -> BufferUsage:
        """Return how full the journal is; the figure is at most `USAGE_AGE_S_MAX` old."""
        events, stored_bytes = self._read_usage(USAGE_AGE_S_MAX)
        return BufferUsage(events, stored_bytes, self.limits.bytes_max, stored_bytes / self.limits.bytes_max)

    def _read_usage(self, age_s_max: float) -> tuple[int, int]:
        if time.monotonic() - self._read_s > age_s_max:
            with self._reading:  # one query is enough for all callers that wait at the same moment
                if time.monotonic() - self._read_s > age_s_max:
                    self._set_usage(pending_totals(self._database))
        return self._pending

    def _note(self, result: GroupResult) -> None:
        self._set_usage(result.pending)
        self.on_append()

    def _set_usage(self, pending: tuple[int, int]) -> None:
        self._pending = pending
        self._read_s = time.monotonic()

    # -- read

    def pending(self, warehouse: str) -> list[Pending]:
        return pending_tables(self._database, warehouse)

    def head(self, warehouse: str) -> int:
        """Return the newest id; 0 if nothing was ever appended."""
        return newest_id(self._database, warehouse)

    def groups(self, warehouse: str) -> list[SharedSpan]:
        """Return the tables that share source transactions in the journal."""
        return table_groups.groups(self._database, warehouse)

    def shared_spans(self, warehouse: str) -> list[SharedSpan]:
        """Return the same for each append."""
        return table_groups.spans(self._database, warehouse)

    def first_after(self, warehouse: str, table: TableName, after: int) -> int | None:
        """Return the first id of a table after another."""
        return first_after(self._database, warehouse, table, after)

    def pending_by_sources(self, warehouse: str) -> list[tuple[TableName, str, int, int]]:
        """Return table, names of sources (see `has_source`), first id, events."""
        return pending_by_sources(self._database, warehouse)

    def border(
        self,
        warehouse: str,
        tables: Collection[TableName],
        after: Mapping[TableName, int],
        up_to: int,
        now_ms: int,
        forbidden: Sequence[ForbiddenRange] = (),
    ) -> int:
        """Return where to cut: see `cut_point`. A table that is not in `after` has landed nothing.

        An announced end is not waited for if the transaction itself fills the journal: the rest of it could
        not be stored, so its end could never arrive.
        """
        starts = {table: after.get(table, 0) for table in tables}
        linger_ms, wait_ms = self.limits.transaction_linger_ms, self.limits.transaction_wait_ms
        cut = functools.partial(
            cut_point,
            self._database,
            warehouse,
            starts,
            up_to,
            now_ms=now_ms,
            linger_ms=linger_ms,
            forbidden=forbidden,
        )
        found = cut(wait_ms=wait_ms)
        if found > min(starts.values(), default=0) or not self._is_filled_by(warehouse, starts):
            return found
        return cut()

    def _is_filled_by(self, warehouse: str, tables: Collection[TableName]) -> bool:
        usage = self.buffer_usage()
        if usage.level < NEARLY_FULL * self.limits.levels[2]:
            return False
        held = sum(one.stored_bytes for one in self.pending(warehouse) if one.table in tables)
        return held > usage.pending_bytes // 2

    def reach(
        self,
        warehouse: str,
        after: Mapping[TableName, int],
        up_to: int,
        *,
        events_max: int,
        bytes_max: int | None = None,
    ) -> int:
        """Return how far a batch of at most this size extends: see `entries.batch_end`."""
        return batch_end(self._database, warehouse, after, up_to, events_max, bytes_max)

    def size(self, warehouse: str, after: Mapping[TableName, int], up_to: int) -> tuple[int, int]:
        """Return events and bytes of these tables, each after its own id."""
        return size_between(self._database, warehouse, after, up_to)

    def read(
        self, warehouse: str, table: TableName, after: int, up_to: int, *, events_max: int | None = None
    ) -> Iterator[JournalEntry]:
        """Return the entries of a table in (after, up_to], oldest first, without the duplicates."""
        return read_entries(self._database, warehouse, table, after, up_to, events_max)

    def trim(self, warehouse: str, landed: Mapping[TableName, int]) -> None:
        """Delete what has landed, up to the id of each table. May be repeated."""
        linger_ms, wait_ms = self.limits.transaction_linger_ms, self.limits.transaction_wait_ms
        trim_entries(self._database, warehouse, landed, self._clock(), linger_ms, wait_ms)
        self._set_usage(pending_totals(self._database))

    def open_letters(self, job_id: str, warehouse: str, landed: Mapping[TableName, int]) -> None:
        """Open the dead letters of a job that is published up to these ids."""
        open_letters(self._database, job_id, warehouse, landed, self._clock())

    def warehouses(self) -> list[str]:
        """Return the warehouses that have pending changes."""
        return warehouses(self._database)

    def forget_warehouse(self, warehouse: str, is_gone: Callable[[], bool]) -> int:
        """Delete the entries of a dropped warehouse: see `expiry.forget_warehouse`."""
        forgotten = forget_warehouse(self._database, warehouse, is_gone)
        self._set_usage(pending_totals(self._database))
        return forgotten

    @functools.cached_property
    def id(self) -> str:
        """Return the id of this journal; each journal has its own."""
        [row] = self._database.fetch_all(_IDENTITY, {})
        return str(row[0])

    def trimmed(self, warehouse: str) -> int:
        """Return the newest id that was deleted because it has landed."""
        return trimmed_to(self._database, warehouse)

    def sources(self, warehouse: str, limit: int = 1000) -> list[tuple[str, SourceState, int]]:
        """Return (source, state, last append) of the sources that have a name."""
        return all_states(self._database, warehouse, limit)

    def source(self, warehouse: str, source: str) -> SourceState:
        """Return the state of a source. NotFound if it has not sent changes."""
        return load_state(self._database, warehouse, source)

    def change_source(
        self, warehouse: str, source: str, change: Callable[[SourceState], SourceState]
    ) -> SourceState:
        """Change the state of a source, under the lock of the appends. NotFound if the source is not
        known.
        """
        return change_state(self._database, warehouse, source, change, self._clock())

    def expire(self, now_ms: int) -> None:
        """Delete identities whose window is over. Called every few seconds, by any process."""
        expire(self._database, now_ms)

    @property
    def database(self) -> Database:
        return self._database

    def close(self) -> None:
        """Finish all queued appends, and end. The database stays open: it belongs to the caller."""
        self._group_commit.close()
