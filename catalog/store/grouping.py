"""Group commit: writes that wait for the same database share its transaction, and one sync to the disk.

SQLite has one writer at a time, and most of a small write is the sync at its COMMIT. So whoever finds the
database free writes at once, alone; who comes meanwhile queues up, and the first of the queue then writes for
all of it. A write is run by one thread from its beginning to its end, and each keeps its own outcome.

    jobs = Jobs(run)            # run(works) -> outcomes, in the order of the works
    jobs.write(work)            # the result of the work, or its exception
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar, cast

import sqlalchemy as sa

from catalog.errors import CommitStateUnknown, Unavailable

GROUP_MAX = 64

T = TypeVar("T")
Work = Callable[[sa.Connection], T]


class Outcome(Generic[T]):
    """What became of one work: its result, or the exception that ended it."""

    __slots__ = ("error", "result")

    def __init__(self, result: T | None = None, error: BaseException | None = None) -> None:
        self.result = result
        self.error = error


class Job:
    """A work that waits. `wake` is released once: when it is done, or when it is its turn to write."""

    __slots__ = ("outcome", "wake", "work")

    def __init__(self, work: Work[Any]) -> None:
        self.work = work
        self.outcome: Outcome[Any] | None = None
        self.wake = threading.Lock()
        self.wake.acquire()


class Jobs:
    """The queue of writers, first come first served."""

    def __init__(self, run: Callable[[Sequence[Work[Any]]], list[Outcome[Any]]]) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._waiting: deque[Job] = deque()
        self._busy = False

    def write(self, work: Work[T], timeout_s: float) -> T:
        job = Job(work)
        if not self._is_ours(job):
            self._wait(job, timeout_s)
        if job.outcome is None:
            self._lead(job)
        outcome = job.outcome
        assert outcome is not None, "whoever leads leaves no job without an outcome"
        if outcome.error is not None:
            raise outcome.error
        return cast("T", outcome.result)

    def _is_ours(self, job: Job) -> bool:
        """Whether nobody writes, so that this job does; else it is in the queue."""
        with self._lock:
            if not self._busy:
                self._busy = True
                return True
            self._waiting.append(job)
            return False

    def _wait(self, job: Job, timeout_s: float) -> None:
        if job.wake.acquire(timeout=timeout_s):
            return
        with self._lock:
            if job in self._waiting:
                self._waiting.remove(job)
                raise Unavailable("the catalog database is busy; nothing was changed")
        job.wake.acquire()  # it is being written: what becomes of it must be known

    def _lead(self, job: Job) -> None:
        """Write for all who wait, wake them, and let the next one lead."""
        with self._lock:
            group = [job]
            while self._waiting and len(group) < GROUP_MAX:
                group.append(self._waiting.popleft())
        try:
            outcomes = self._run([one.work for one in group])
        except BaseException as error:  # noqa: BLE001 - nobody may be left waiting
            # Nothing that `run` foresaw, so nobody knows how far it came.
            unknown = CommitStateUnknown("the write was interrupted; look before you retry")
            outcomes = [Outcome(error=error), *(Outcome(error=unknown) for _ in group[1:])]
        for one, outcome in zip(group, outcomes, strict=True):
            one.outcome = outcome
        with self._lock:
            following = self._waiting.popleft() if self._waiting else None
            self._busy = following is not None
        if following is not None:
            following.wake.release()
        for one in group[1:]:
            one.wake.release()
