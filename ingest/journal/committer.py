"""Group commit: one thread takes all requests that wait, appends them in one transaction, and answers them.

Whoever comes while a COMMIT is under way waits for the next one, so the group grows with the load and a lone
request waits for nobody. If a group fails because of what is in it, its requests are tried one by one, so
that only the one at fault is refused.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from catalog import faults
from catalog.errors import CatalogError, CommitStateUnknown, Invalid, Unavailable
from ingest.journal.appending import Appender, Result
from ingest.journal.limits import JournalLimits
from ingest.journal.packing import Packed
from ingest.journal.receipts import Receipt

log = logging.getLogger(__name__)

# PostgreSQL: a value that a column cannot hold, a constraint, a row or a name that is too large. Every other
# state says something about the server (a failover, a full disk, a shutdown): the request may be sent again.
_BAD_DATA = ("22", "23", "54")

# Errors of any Python driver by which it refuses values before it sends them.
_REFUSALS = frozenset({"DataError", "IntegrityError", "NotSupportedError", "ProgrammingError"})

Waiting = tuple[Packed, "Future[Receipt]"]


class Committer:
    def __init__(
        self,
        appender: Appender,
        limits: JournalLimits,
        clock: Callable[[], int],
        noted: Callable[[Result], None],
    ) -> None:
        self._appender = appender
        self._limits = limits
        self._clock = clock
        self._noted = noted
        self._waiting: deque[Waiting] = deque()
        self._queued_bytes = 0
        self._condition = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    @property
    def queued_bytes(self) -> int:
        return self._queued_bytes

    def submit(self, request: Packed) -> Future[Receipt]:
        """Unavailable after `close`."""
        future: Future[Receipt] = Future()
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
        """Answers all that wait, then ends."""
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

    def _take(self) -> list[Waiting]:
        group: list[Waiting] = []
        left = self._limits.group_bytes_max
        while self._waiting and len(group) < self._limits.group_requests_max:
            if group and self._waiting[0][0].stored_bytes > left:
                break
            group.append(self._waiting.popleft())
            left -= group[-1][0].stored_bytes
        return group

    def _commit(self, group: Sequence[Waiting]) -> None:
        try:
            result = self._appender.append([request for request, _ in group], self._clock())
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait must be told
            self._failed(group, error)
            return
        self._noted(result)
        for (_, future), answer in zip(group, result.answers, strict=True):
            if isinstance(answer, CatalogError):
                _fail(future, answer)
            elif future.set_running_or_notify_cancel():
                future.set_result(answer)
        faults.reach("journal.answered")

    def _failed(self, group: Sequence[Waiting], error: Exception) -> None:
        if not _is_about_data(error):
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
            _fail(group[0][1], Invalid(f"the journal cannot keep this request: {_root(error)}"))


def _fail(future: Future[Receipt], error: Exception) -> None:
    if future.set_running_or_notify_cancel():
        future.set_exception(error)


def _root(error: BaseException) -> BaseException:
    return error.__cause__ if isinstance(error, CatalogError) and error.__cause__ is not None else error


def _is_about_data(error: Exception) -> bool:
    """Whether the transaction surely did nothing, and would not do better at another time."""
    if isinstance(error, CommitStateUnknown):
        return False
    cause = _root(error)
    cause = getattr(cause, "orig", None) or cause  # SQLAlchemy wraps the driver's
    state = getattr(cause, "sqlstate", None)
    if state is not None:
        return bool(state.startswith(_BAD_DATA))
    if isinstance(cause, (TypeError, ValueError, OverflowError)):
        return True
    return any(kind.__name__ in _REFUSALS for kind in type(cause).__mro__)


def now_ms() -> int:
    return time.time_ns() // 1_000_000
