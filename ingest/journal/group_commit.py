"""Group commit: one thread appends all waiting requests in one SQL transaction, and completes them after
COMMIT.

Requests that arrive during a COMMIT wait for the next one, so the group grows with the load, and a single
request does not wait. If a group fails because of its data, its requests are tried one by one, so that only
the bad one is refused.

The order inside the transaction is: lock the counter of each warehouse (sorted, which prevents deadlocks),
refuse requests that no longer fit, find duplicates, write entries, numbers, identity digests, transactions
and table groups, advance the counter. Memory changes only after COMMIT.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import orjson
import sqlalchemy as sa
from prometheus_client import Counter as MetricCounter

from catalog import faults
from catalog.errors import CatalogError, Invalid, Unavailable
from catalog.store.database import Database
from catalog.store.statements import run_many
from ingest.change import table_name
from ingest.journal import table_groups
from ingest.journal.encoded_request import EncodedEntry, EncodedRequest, bound_of
from ingest.journal.entries import Counter, advance_counter, lock_counter, pending_in_transaction
from ingest.journal.numbers import GroupNumbers
from ingest.journal.receipts import AppendReceipt, BatchChanged, JournalFull, SourceHeld
from ingest.journal.schema import entries, is_about_data, root_cause
from ingest.journal.sources import DeduplicationWindow, GroupDigests, SourceStates, load_window
from ingest.journal.transactions import (
    TransactionLedger,
    load_transactions,
    new_steps,
    store_transactions,
    touched_by,
)
from ingest.settings import JournalLimits

_INSERT_ENTRY = sa.insert(entries)

PENDING_READ_EVERY_S = 0.25  # how often to read what other processes have appended and trimmed

_holds = MetricCounter(
    "calve_source_holds_total", "Requests that were refused because their changes cannot be put in order."
)

Answer = AppendReceipt | CatalogError

log = logging.getLogger(__name__)


@dataclass(slots=True)
class AppendedRows:
    """The rows that the transaction added for one warehouse; memory is updated with them after COMMIT."""

    head: Counter
    digests: GroupDigests | None = None


@dataclass(slots=True)
class GroupResult:
    answers: list[Answer]
    pending: tuple[int, int]  # events and bytes, over all warehouses
    was_read: bool  # whether that was read from the database, and not only computed
    appended: dict[str, AppendedRows] = field(default_factory=dict)


class Appender:
    """Used by one thread."""

    def __init__(self, database: Database, limits: JournalLimits) -> None:
        self._database = database
        self._limits = limits
        self._windows: dict[str, DeduplicationWindow] = {}
        self._pending = (0, 0)
        self._read_s = float("-inf")

    def append(self, requests: Sequence[EncodedRequest], now_ms: int) -> GroupResult:
        """Durable on return. Unavailable: nothing was stored. CommitStateUnknown: it may have been stored."""
        for warehouse in {request.warehouse for request in requests if request.digests}:
            load_window(self._database, warehouse, self._window(warehouse), now_ms)
        expires_ms = now_ms + self._limits.window_ms
        result = self._database.write(lambda connection: self._work(connection, requests, now_ms))
        faults.reach("journal.committed")
        self._pending = result.pending
        if result.was_read:
            self._read_s = time.monotonic()
        for warehouse, appended in result.appended.items():
            if appended.digests is not None:
                appended.digests.after_commit(appended.head.id, expires_ms)
                self._forget(warehouse, now_ms)
        return result

    def _window(self, warehouse: str) -> DeduplicationWindow:
        if warehouse not in self._windows:
            self._windows[warehouse] = DeduplicationWindow(self._limits.digests_max)
        return self._windows[warehouse]

    def _forget(self, warehouse: str, now_ms: int) -> None:
        early = self._windows[warehouse].forget(now_ms)
        if early:
            log.warning(
                "too many identities for memory: some were deleted early, so a late duplicate may land",
                extra={"warehouse": warehouse, "identities": early},
            )

    def _work(
        self, connection: sa.Connection, requests: Sequence[EncodedRequest], now_ms: int
    ) -> GroupResult:
        warehouses = sorted({request.warehouse for request in requests})
        locked = {warehouse: lock_counter(connection, warehouse) for warehouse in warehouses}
        faults.reach("journal.locked")
        must_read = self._must_read_pending(requests)
        events, stored_bytes = pending_in_transaction(connection) if must_read else self._pending
        answers: list[Answer | None] = self._refusals(requests, stored_bytes)
        result = GroupResult([], (events, stored_bytes), must_read)
        for warehouse, head in locked.items():
            indexes = [
                index
                for index, request in enumerate(requests)
                if request.warehouse == warehouse and answers[index] is None
            ]
            one = _OneWarehouse(connection, warehouse, head, now_ms)
            accepted = [requests[index] for index in indexes]
            receipts = one.append(accepted, self._windows.get(warehouse), now_ms + self._limits.window_ms)
            for index, receipt in zip(indexes, receipts, strict=True):
                answers[index] = receipt
            if one.ledger is not None:
                table_groups.store(connection, warehouse, one.ledger.shared())
            events += one.appended.head.events - head.events
            stored_bytes += one.appended.head.stored_bytes - head.stored_bytes
            result.appended[warehouse] = one.appended
        faults.reach("journal.before-commit")
        result.answers = [answer for answer in answers if answer is not None]
        result.pending = (events, stored_bytes)
        return result

    def _must_read_pending(self, requests: Sequence[EncodedRequest]) -> bool:
        """Return whether to read how much is pending: far from the limit, the last known figure is enough."""
        if time.monotonic() - self._read_s > PENDING_READ_EVERY_S:
            return True
        bound = min(bound_of(self._limits, request.priority) for request in requests)
        requested_bytes = sum(request.stored_bytes for request in requests)
        return self._pending[1] + requested_bytes > bound // 2

    def _refusals(self, requests: Sequence[EncodedRequest], stored_bytes: int) -> list[Answer | None]:
        """Return JournalFull for each request that no longer fits; None for the others."""
        answers: list[Answer | None] = []
        for request in requests:
            bound = bound_of(self._limits, request.priority)
            if request.entries and stored_bytes + request.stored_bytes > bound:
                answers.append(JournalFull(stored_bytes / self._limits.bytes_max))
            else:
                stored_bytes += request.stored_bytes
                answers.append(None)
        return answers


class _OneWarehouse:
    """The part of the transaction that concerns one warehouse."""

    def __init__(self, connection: sa.Connection, warehouse: str, head: Counter, now_ms: int) -> None:
        self._connection = connection
        self._warehouse = warehouse
        self._now_ms = now_ms
        self._id = head.id
        self._rows: list[dict[str, Any]] = []
        self.ledger: TransactionLedger | None = None  # set if a request has a part of a source transaction
        self.appended = AppendedRows(head)

    def append(
        self, requests: Sequence[EncodedRequest], window: DeduplicationWindow | None, expires_ms: int
    ) -> list[Answer]:
        if not requests:
            return []
        began = self._id
        names = {run.source for request in requests for run in request.runs}
        states = SourceStates(self._connection, self._warehouse, names) if names else None
        held = [states.assign(request, self._now_ms) if states is not None else None for request in requests]
        stored = [request for request, refusal in zip(requests, held, strict=True) if refusal is None]
        is_numbered = any(request.numbered for request in stored)
        numbers = GroupNumbers(self._connection, self._warehouse, stored) if is_numbered else None
        digests = self._group_digests(stored, window)
        self._load_transactions(stored)
        receipts = [
            self._one(request, numbers, digests) if refusal is None else refusal
            for request, refusal in zip(requests, held, strict=True)
        ]
        run_many(_INSERT_ENTRY, self._connection, self._rows)
        faults.reach("journal.entries-written")
        if numbers is not None:
            numbers.store()
        if states is not None:
            states.store(self._now_ms)
        faults.reach("journal.numbers-written")
        if digests is not None:
            digests.store(self._id, expires_ms)
            faults.reach("journal.marks-written")
        if self.ledger is not None:
            store_transactions(self._connection, self._warehouse, self.ledger.kept(), self.ledger.gone())
        if self._id != began:
            self.appended.head = advance_counter(
                self._connection,
                self._warehouse,
                self._id - began,
                sum(row["events"] for row in self._rows),
                sum(row["stored_bytes"] for row in self._rows),
            )
        self.appended.digests = digests
        return receipts

    def _group_digests(
        self, requests: Sequence[EncodedRequest], window: DeduplicationWindow | None
    ) -> GroupDigests | None:
        if window is None or not any(request.digests for request in requests):
            return None
        return GroupDigests(self._connection, self._warehouse, window, self._now_ms)

    def _load_transactions(self, requests: Sequence[EncodedRequest]) -> None:
        if any(request.steps or request.begins or request.ends for request in requests):
            self.ledger = TransactionLedger()
            self.ledger.add_stored(load_transactions(self._connection, self._warehouse, touched_by(requests)))

    def _one(
        self, request: EncodedRequest, numbers: GroupNumbers | None, digests: GroupDigests | None
    ) -> Answer:
        if digests is not None and digests.is_changed(request):
            return BatchChanged()
        duplicates = set(numbers.take(request)) if numbers is not None else set()
        if digests is not None:
            duplicates.update(digests.take(request))
        epochs = [[*key, epoch] for key, epoch in request.epochs.items()]
        text = orjson.dumps(epochs).decode() if epochs else None
        rows = [row for entry in request.entries if (row := self._row(entry, duplicates, text)) is not None]
        first = None
        if rows or (request.has_excluded and len(duplicates) < len(request.indexes)):
            self._id += 1  # the identities of excluded events need an id as well
        if rows:
            first = self._id
            for row in rows:
                row["id"] = first
            self._rows += rows
        if self.ledger is not None and (request.steps or request.ends or request.begins):
            steps = new_steps(request.steps, duplicates)
            self.ledger.take(steps, request.ends, self._id, self._now_ms, request.begins)
        return AppendReceipt(
            first=first,
            last=first,
            duplicates=_indexes(request.indexes, duplicates),
            tables=tuple(table_name(row["table_key"]) for row in rows),
            head=self._id,
        )

    def _row(self, entry: EncodedEntry, duplicates: set[int], epochs: str | None) -> dict[str, Any] | None:
        skips = [index for index, slot in enumerate(entry.slots) if slot in duplicates] if duplicates else []
        if len(skips) == len(entry.slots):
            return None
        return {
            "warehouse": self._warehouse,
            "table_key": entry.key,
            "events": len(entry.slots) - len(skips),
            "stored_bytes": len(entry.blob),
            "received_ms": self._now_ms,
            "skips": orjson.dumps(skips) if skips else None,
            "blob": entry.blob,
            "sources": entry.sources,
            "epochs": epochs,
        }


def _indexes(indexes: Sequence[int], duplicates: set[int]) -> frozenset[int]:
    """Return the events of which every part is a duplicate: one event may have become several changes."""
    if not duplicates:
        return frozenset()
    new = {index for slot, index in enumerate(indexes) if slot not in duplicates}
    return frozenset(indexes[slot] for slot in duplicates) - new


# -- the thread

QueuedRequest = tuple[EncodedRequest, "Future[AppendReceipt]"]


class GroupCommit:
    def __init__(
        self,
        appender: Appender,
        limits: JournalLimits,
        clock: Callable[[], int],
        on_commit: Callable[[GroupResult], None],
    ) -> None:
        self._appender = appender
        self._limits = limits
        self._clock = clock
        self._on_commit = on_commit
        self._waiting: deque[QueuedRequest] = deque()
        self._queued_bytes = 0
        self._condition = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    @property
    def queued_bytes(self) -> int:
        return self._queued_bytes

    def submit(self, request: EncodedRequest) -> Future[AppendReceipt]:
        """Queue a request. Unavailable after `close`."""
        future: Future[AppendReceipt] = Future()
        with self._condition:
            if self._closed:
                raise Unavailable("the journal is closed; nothing was stored")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
                self._thread.start()
            self._waiting.append((request, future))
            self._queued_bytes += request.stored_bytes
            self._condition.notify()
        return future

    def close(self) -> None:
        """Commit all queued requests, then end."""
        with self._condition:
            self._closed = True
            self._condition.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._waiting and not self._closed:
                    self._condition.wait()
                if not self._waiting:
                    return
                group = self._take()
            self._commit(group)
            with self._condition:
                self._queued_bytes -= sum(request.stored_bytes for request, _ in group)

    def _take(self) -> list[QueuedRequest]:
        group: list[QueuedRequest] = []
        left = self._limits.group_bytes_max
        while self._waiting and len(group) < self._limits.group_requests_max:
            if group and self._waiting[0][0].stored_bytes > left:
                break
            group.append(self._waiting.popleft())
            left -= group[-1][0].stored_bytes
        return group

    def _commit(self, group: Sequence[QueuedRequest]) -> None:
        try:
            result = self._appender.append([request for request, _ in group], self._clock())
        except Exception as error:  # noqa: BLE001 - every error must reach the waiting requests
            self._failed(group, error)
            return
        self._on_commit(result)
        for (_, future), answer in zip(group, result.answers, strict=True):
            if isinstance(answer, CatalogError):
                if isinstance(answer, SourceHeld):
                    _holds.inc()
                    log.warning("a source is held", extra={"source": answer.source, "reason": answer.reason})
                _fail(future, answer)
            elif future.set_running_or_notify_cancel():
                future.set_result(answer)
        faults.reach("journal.answered")

    def _failed(self, group: Sequence[QueuedRequest], error: Exception) -> None:
        if not is_about_data(error):
            log.warning("an append failed", extra={"requests": len(group), "reason": str(error)})
            refusal = (
                error if isinstance(error, CatalogError) else Unavailable(f"nothing was stored: {error}")
            )
            for _, future in group:
                _fail(future, refusal)
        elif len(group) > 1:
            for one in group:
                self._commit([one])
        else:
            log.error("a request cannot be stored", exc_info=error)
            _fail(group[0][1], Invalid(f"the journal cannot keep this request: {root_cause(error)}"))


def _fail(future: Future[AppendReceipt], error: Exception) -> None:
    if future.set_running_or_notify_cancel():
        future.set_exception(error)


def now_ms() -> int:
    return time.time_ns() // 1_000_000
