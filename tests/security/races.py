"""Several callers at the same moment."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def at_once(count: int, ask: Callable[[int], T]) -> list[T]:
    """What `count` callers got; they begin together."""
    together = threading.Barrier(count)

    def begin(number: int) -> T:
        together.wait(60)
        return ask(number)

    with ThreadPoolExecutor(count) as callers:
        return list(callers.map(begin, range(count)))
