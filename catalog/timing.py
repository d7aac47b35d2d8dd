"""Where the time of one request goes, for whoever asks with the header `X-Calve-Timing: 1`.

A stage that is entered inside another is taken off it, so the stages of a request add up. Without a collector
(the usual case) a stage costs the look at one attribute.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType


class Collector(threading.local):
    """The stages of the request that this thread works on; `spent_ns` is None while nobody asks."""

    spent_ns: dict[str, int] | None = None
    inner_ns: int = 0


_collector = Collector()


class stage:  # noqa: N801 - reads as a word of the language: `with stage("sql"):`
    __slots__ = ("_began_ns", "_name", "_outer_ns")

    def __init__(self, name: str) -> None:
        self._name = name
        self._began_ns = 0
        self._outer_ns = 0

    def __enter__(self) -> None:
        if _collector.spent_ns is not None:
            self._outer_ns = _collector.inner_ns
            _collector.inner_ns = 0
            self._began_ns = time.perf_counter_ns()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        spent = _collector.spent_ns
        if spent is not None and self._began_ns:
            took_ns = time.perf_counter_ns() - self._began_ns
            spent[self._name] = spent.get(self._name, 0) + took_ns - _collector.inner_ns
            _collector.inner_ns = self._outer_ns + took_ns


def begin() -> None:
    """Collect from here on, in this thread."""
    _collector.spent_ns = {}
    _collector.inner_ns = 0


def end() -> dict[str, float]:
    """The stages since `begin`, in milliseconds; collecting stops."""
    spent = _collector.spent_ns or {}
    _collector.spent_ns = None
    return {name: nanoseconds / 1e6 for name, nanoseconds in spent.items()}
