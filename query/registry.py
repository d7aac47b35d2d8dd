"""The queries of one server process: those that run, and the most recent ones that ended."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Literal

from catalog.errors import CatalogError, NotFound
from catalog.models import Caller, Role
from query.pool import Lease

RECENT_MAX = 200
PROCESS_CHARS = 8
SQL_CHARS_SHOWN = 1000

QueryState = Literal["waiting", "running", "done", "failed", "cancelled"]


class NoSuchQuery(NotFound):
    type = "NoSuchQueryException"

    def __init__(self, query_id: str) -> None:
        super().__init__(f"No query {query_id} of yours is running")


def may_cancel(caller: Caller, owner: str, warehouse: str) -> bool:
    """Return whether the caller owns the query or administers its warehouse."""
    return owner == caller.name or caller.role(warehouse) == Role.ADMIN


@dataclass(slots=True, eq=False)
class Query:
    """One query from its request to its last byte."""

    id: str
    caller: str
    sql: str
    warehouse: str
    started_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)
    started_s: float = field(default_factory=time.monotonic)
    state: QueryState = "waiting"
    rows: int | None = None  # known when the query is done
    sent_bytes: int = 0
    duration_ms: float | None = None
    error: str | None = None
    stopped: CatalogError | None = None  # why it was stopped from outside
    warehouses: set[str] = field(default_factory=set)
    lease: Lease | None = None
    task: asyncio.Task[Any] | None = None  # until the first piece of the result is available

    def stop(self, reason: CatalogError) -> None:
        """Stop the query in any state."""
        if self.duration_ms is not None or self.stopped is not None:
            return
        self.stopped = reason
        if self.lease is not None:
            self.lease.abort()
        if self.task is not None:
            self.task.cancel()

    def end(self, error: str | None = None) -> None:
        if self.duration_ms is not None:
            return
        self.duration_ms = round((time.monotonic() - self.started_s) * 1000, 3)
        self.error = error
        self.state = "done" if error is None else "failed" if self.stopped is None else "cancelled"

    def as_json(self) -> dict[str, Any]:
        now_s = time.monotonic()
        running_ms = round((now_s - self.started_s) * 1000, 3)
        return {
            "query_id": self.id,
            "caller": self.caller,
            "warehouse": self.warehouse,
            "sql": self.sql[:SQL_CHARS_SHOWN],
            "state": self.state,
            "started_ms": self.started_ms,
            "duration_ms": running_ms if self.duration_ms is None else self.duration_ms,
            "rows": self.rows,
            "bytes": self.sent_bytes,
            "error": self.error,
        }


class Registry:
    """`process` names the server process; the ids of its queries begin with it."""

    def __init__(self) -> None:
        self.process = uuid.uuid4().hex[:PROCESS_CHARS]
        self._running: dict[str, Query] = {}
        self._recent: deque[Query] = deque(maxlen=RECENT_MAX)
        self._ended: deque[Query] = deque(maxlen=RECENT_MAX)

    def begin(self, caller: str, sql: str, warehouse: str) -> Query:
        id_ = self.process + uuid.uuid4().hex[PROCESS_CHARS:]
        query = self._running[id_] = Query(id_, caller, sql, warehouse)
        return query

    def finish(self, query: Query, error: str | None = None) -> None:
        query.end(error)
        if self._running.pop(query.id, None) is not None:
            self._recent.appendleft(query)
            self._ended.append(query)

    def running(self) -> list[Query]:
        return list(self._running.values())

    def find(self, query_id: str) -> Query | None:
        """Return a running query."""
        return self._running.get(query_id)

    def take_ended(self) -> list[Query]:
        """Return the queries that ended since the last call; only the newest, if there are very many."""
        found = list(self._ended)
        self._ended.clear()
        return found

    def listed(self, warehouse: str) -> list[dict[str, Any]]:
        """Return the queries that read the warehouse: running ones first, then recent ones, the
        newest first.
        """
        everything = [*reversed(self._running.values()), *self._recent]
        return [query.as_json() for query in everything if warehouse in {query.warehouse, *query.warehouses}]
