"""Whether a worker runs, from the rows of workers and supervisors."""

from __future__ import annotations

from typing import Any

import pytest

from ingest.landing.status import GONE_MS, NO_WORKER, READY, shown_workers, supervisor_row, worker_state

NOW_MS = 10_000_000
MISSING = "not running: jars missing, run `make setup`"


def row(name: str, said: dict[str, Any], age_ms: int = 0) -> tuple[str, int, dict[str, Any]]:
    return name, NOW_MS - age_ms, said


def supervisor(worker: str | None, reason: str | None, age_ms: int = 0) -> tuple[str, int, dict[str, Any]]:
    return row(*supervisor_row("here:8181", worker, reason), age_ms)


@pytest.mark.parametrize(
    ("rows", "state"),
    [
        ([], NO_WORKER),
        ([row("w-1", {})], "ok"),
        ([row("w-1", {}, GONE_MS)], NO_WORKER),
        ([supervisor(None, MISSING)], MISSING),
        ([supervisor(None, MISSING, GONE_MS)], NO_WORKER),
        ([supervisor("w-1", None)], READY),
        ([supervisor("w-1", None, GONE_MS)], NO_WORKER),
        ([supervisor("w-1", None), row("w-1", {})], "ok"),
        # Its supervisor knows that it ended, long before its last request is a minute ago.
        ([supervisor("w-1", "not running: ended"), row("w-1", {})], "not running: ended"),
        ([supervisor("w-1", "not running: ended"), row("w-2", {})], "ok"),
        ([supervisor("w-1", "not running: ended", GONE_MS), row("w-1", {})], "ok"),
    ],
)
def test_the_state(rows: list[Any], state: str) -> None:
    assert worker_state(rows, NOW_MS) == state


def test_the_newest_reason_is_told() -> None:
    rows = [
        row(*supervisor_row("a", None, "older"), 5_000),
        row(*supervisor_row("b", None, "newer"), 1_000),
    ]
    assert worker_state(rows, NOW_MS) == "newer"


def test_a_supervisor_is_not_shown_as_a_worker() -> None:
    rows = [row("w-1", {"slots": 2}, 10), supervisor("w-1", None)]
    assert shown_workers(rows, NOW_MS) == [
        {"worker": "w-1", "seen-ms": NOW_MS - 10, "alive": True, "slots": 2}
    ]
