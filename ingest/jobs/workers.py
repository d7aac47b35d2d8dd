"""Whether a worker runs and, if none does, the reason: from the rows that workers and supervisors write.

A worker's row is written when it asks for a job. A supervisor is the process that starts a worker beside a
server; its row names that worker and says why it does not run, or has no reason while it runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

GONE_MS = 60_000
OK = "ok"
READY = "starting: the worker is ready, and has not asked for work yet"
NO_WORKER = "not running: no worker has asked for work in the last minute, start one with `calve worker`"
_SUPERVISOR = "supervisor "

Row = tuple[str, int, dict[str, Any]]  # name, last seen in ms, what it said


def supervisor_row(place: str, worker: str | None, reason: str | None) -> tuple[str, dict[str, Any]]:
    """The name and the content of a supervisor's row; `place` tells supervisors apart."""
    return f"{_SUPERVISOR}{place}", {"worker": worker, "reason": reason}


def shown_workers(rows: Iterable[Row], now_ms: int) -> list[dict[str, Any]]:
    """The workers of the last minutes, as /status shows them."""
    rows = list(rows)
    ended = {said.get("worker") for said in _supervisors(rows, now_ms) if said.get("reason")}
    return [
        {"worker": name, "seen-ms": seen, "alive": now_ms - seen < GONE_MS and name not in ended, **said}
        for name, seen, said in rows
        if not name.startswith(_SUPERVISOR)
    ]


def worker_state(rows: Iterable[Row], now_ms: int) -> str:
    """`ok` if a worker runs, else why none does and what to do."""
    rows = list(rows)
    if any(worker["alive"] for worker in shown_workers(rows, now_ms)):
        return OK
    supervisors = _supervisors(rows, now_ms)
    reasons = [said["reason"] for said in supervisors if said.get("reason")]
    if reasons:
        return str(reasons[0])
    # Its supervisor says that the worker is ready; its first request for work is on the way.
    return READY if any(said.get("worker") for said in supervisors) else NO_WORKER


def _supervisors(rows: list[Row], now_ms: int) -> list[dict[str, Any]]:
    """What supervisors said in the last minute; one that still has a reason repeats it."""
    recent = [row for row in rows if row[0].startswith(_SUPERVISOR) and abs(now_ms - row[1]) < GONE_MS]
    return [said for _, _, said in sorted(recent, key=lambda row: -row[1])]
