"""Group commit: writes that wait for SQLite share one transaction, and one sync to the disk.

SQLite has one writer at a time, and most of a small write is the sync at its COMMIT. A thread that finds the
database free writes at once. Threads that arrive meanwhile queue, and the first of the queue then runs the
writes of all of them in one transaction. Each write has its own result: it runs inside a savepoint, so one
that is refused changes nothing and does not affect the others.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar, cast

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from catalog.errors import CommitStateUnknown, Unavailable
from catalog.store.database import DATABASE_ERRORS, NOTHING_CHANGED, Work, Writer

GROUP_MAX = 64
WAIT_MAX_S = 30.0

T = TypeVar("T")
Transaction = Callable[[Work[Any]], Any]


class Result(Generic[T]):
    """The return value or the exception of one write."""

    __slots__ = ("error", "value")

    def __init__(self, value: T | None = None, error: BaseException | None = None) -> None:
        self.value = value
        self.error = error


class PendingWrite:
    """A write in the queue. `wake` is released once: when it has a result, or when it must lead a group."""

    __slots__ = ("result", "wake", "work")

    def __init__(self, work: Work[Any]) -> None:
        self.work = work
        self.result: Result[Any] | None = None
        self.wake = threading.Lock()
        self.wake.acquire()


class GroupCommit(Writer):
    """A `Writer` for SQLite: a queue of writers, first come, first served."""

    def __init__(self, wait_max_s: float = WAIT_MAX_S) -> None:
        self._wait_max_s = wait_max_s
        self._lock = threading.Lock()
        self._waiting: deque[PendingWrite] = deque()
        self._busy = False

    def write(self, transaction: Transaction, work: Work[T]) -> T:
        pending = PendingWrite(work)
        if not self._leads_at_once(pending):
            self._wait(pending)
        if pending.result is None:
            self._lead(transaction, pending)
        result = pending.result
        assert result is not None, "the leader gives every write of its group a result"
        if result.error is not None:
            raise result.error
        return cast("T", result.value)

    def _leads_at_once(self, pending: PendingWrite) -> bool:
        """True if no write is running; otherwise the write is put into the queue."""
        with self._lock:
            if not self._busy:
                self._busy = True
                return True
            self._waiting.append(pending)
            return False

    def _wait(self, pending: PendingWrite) -> None:
        if pending.wake.acquire(timeout=self._wait_max_s):
            return
        with self._lock:
            if pending in self._waiting:
                self._waiting.remove(pending)
                raise Unavailable("the catalog database is busy; nothing was changed")
        pending.wake.acquire()  # a running group has taken it, so its result must be awaited

    def _lead(self, transaction: Transaction, pending: PendingWrite) -> None:
        """Run the group, wake its members, and let the next waiting write lead."""
        with self._lock:
            group = [pending]
            while self._waiting and len(group) < GROUP_MAX:
                group.append(self._waiting.popleft())
        try:
            results = _run(transaction, [one.work for one in group])
        except BaseException as error:  # noqa: BLE001 - no member may wait for ever
            unknown = CommitStateUnknown("the write was interrupted; look before you retry")
            results = [Result(error=error), *(Result(error=unknown) for _ in group[1:])]
        for one, result in zip(group, results, strict=True):
            one.result = result
        with self._lock:
            following = self._waiting.popleft() if self._waiting else None
            self._busy = following is not None
        if following is not None:
            following.wake.release()
        for one in group[1:]:
            one.wake.release()


def _run(transaction: Transaction, works: Sequence[Work[Any]]) -> list[Result[Any]]:
    """All works in one transaction, each all or nothing; the result of each, once it is certain."""
    if len(works) == 1:
        return [_single(transaction, works[0])]
    results: list[Result[Any]] = []

    def together(connection: sa.Connection) -> None:
        results.extend(_in_savepoint(connection, work) for work in works)

    try:
        transaction(together)
    except CommitStateUnknown as unknown:
        return [_after_unknown(result, unknown) for result in results]
    except DATABASE_ERRORS:
        # Nothing was committed. Run each alone, because one of them may be the cause.
        return [_single(transaction, work) for work in works]
    return results


def _single(transaction: Transaction, work: Work[Any]) -> Result[Any]:
    try:
        return Result(transaction(work))
    except Exception as error:  # noqa: BLE001 - raised again in the thread that the write belongs to
        return Result(error=error)


def _in_savepoint(connection: sa.Connection, work: Work[Any]) -> Result[Any]:
    """One write of a group. A refusal undoes this write; an error of the database ends the group."""
    savepoint = connection.begin_nested()
    try:
        result = Result(work(connection))
    except Exception as error:
        if isinstance(error, DATABASE_ERRORS) and not isinstance(error, IntegrityError):
            raise
        savepoint.rollback()
        return Result(error=error)
    savepoint.commit()
    return result


def _after_unknown(result: Result[Any], unknown: CommitStateUnknown) -> Result[Any]:
    """The result of one write after a COMMIT that failed. A refusal may have been caused by the others."""
    if result.error is not None:
        return Result(error=Unavailable(NOTHING_CHANGED))
    error = CommitStateUnknown(unknown.message)
    error.__cause__ = unknown
    return Result(error=error)
