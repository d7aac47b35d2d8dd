"""A producer of changes in Calve's own format, and the patience to see them land."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from typing import Any

import httpx

Event = dict[str, Any]


class Producer:
    """Counts its events without gaps, as one source."""

    def __init__(self, url: str, source: str, *, headers: dict[str, str] | None = None) -> None:
        self.source = source
        self.client = httpx.Client(base_url=url, timeout=60, headers=headers)
        self._numbers = itertools.count(1)

    def event(
        self, operation: str, table: str, before: Any = None, after: Any = None, **metadata: Any
    ) -> Event:
        row = after or before or {}
        return {
            "sequence": next(self._numbers),
            "timestamp": time.time_ns() // 1_000_000,
            "operation": operation,
            "table": table,
            "rowId": str(row.get("id", "")),
            "before": before,
            "after": after,
            **({"metadata": metadata} if metadata else {}),
        }

    def send(self, events: Iterable[Event], **params: Any) -> dict[str, Any]:
        """The answer; raises unless everything was taken."""
        answer = self.client.post(
            "/cdc", json={"events": list(events)}, params=params, headers={"X-Source-Id": self.source}
        )
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found

    def insist(self, events: list[Event], *, timeout_s: float = 120) -> dict[str, Any]:
        """Send until it is acknowledged, over crashes and refusals, as every real producer does."""
        until_s = time.monotonic() + timeout_s
        while True:
            try:
                return self.send(events)
            except httpx.HTTPError:
                if time.monotonic() > until_s:
                    raise
                time.sleep(0.1)


def flush(url: str, *, timeout_s: float = 240) -> dict[str, Any]:
    """Cut now, and wait until everything is visible, however long the server lets one call wait."""
    until_s = time.monotonic() + timeout_s
    while True:
        body = {"wait": True, "timeout_s": 60}
        answer = httpx.post(f"{url}/flush", json=body, timeout=120).raise_for_status()
        found: dict[str, Any] = answer.json()
        if found["committed"]:
            return found
        assert time.monotonic() < until_s, f"not visible after {timeout_s} s: {found}"


def wait_until_landed(url: str, *, timeout_s: float = 240) -> None:
    """Until nothing is pending, over crashes of the server."""
    until_s = time.monotonic() + timeout_s
    status: Any = None
    while time.monotonic() < until_s:
        try:
            status = httpx.get(f"{url}/status", timeout=30).raise_for_status().json()["landing"]
        except httpx.HTTPError:
            time.sleep(0.2)
            continue
        if not any(table["pending-events"] for table in status["tables"].values()) and not status["jobs"]:
            return
        time.sleep(0.1)
    raise AssertionError(f"not landed after {timeout_s} s: {status}")


def in_batches(events: Iterable[Event], size: int) -> Iterator[list[Event]]:
    waiting = iter(events)
    while batch := list(itertools.islice(waiting, size)):
        yield batch
