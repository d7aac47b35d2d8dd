"""The progress of a job, as its heartbeats report it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from spark_jobs.server_client import LostLease


class Progress:
    """The progress of a job. The job sets it, and the heartbeat reads it and records a lost lease."""

    def __init__(self) -> None:
        self._facts: dict[str, Any] = {"stage": "leased"}
        self._lost: str | None = None
        self._watched: dict[str, Callable[[], int]] = {}
        self._lock = threading.Lock()
        self.transaction: str | None = None  # the open transaction of a MERGE

    def set(self, **facts: Any) -> None:
        with self._lock:
            self._facts |= facts

    def watch(self, name: str, read: Callable[[], int]) -> None:
        """Report a number that increases while tasks run."""
        with self._lock:
            self._watched[name] = read

    def facts(self) -> dict[str, Any]:
        with self._lock:
            return self._facts | {name: read() for name, read in self._watched.items()}

    def lose(self, reason: str) -> None:
        self._lost = reason

    def check(self) -> None:
        """Raise LostLease if a heartbeat was refused."""
        if self._lost is not None:
            raise LostLease(self._lost)
