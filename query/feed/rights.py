"""Check whether a subscriber may still read its warehouse.

A subscription outlives many requests, so its rights are checked again with every message. The result is used
for `VALID_S` by all subscriptions of the same caller: a revoked principal gets nothing that is published
later than that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor

from catalog.errors import CatalogError

VALID_S = 1.0
REMEMBERED_MAX = 10_000

Check = Callable[[str | None, str], object]  # raises NotAuthorized, Forbidden or NoSuchWarehouse


class RightsChecks:
    """The access checks of all subscribers of a process."""

    def __init__(self, check: Check, threads: Executor, now_s: Callable[[], float] = time.monotonic) -> None:
        self._check = check
        self._threads = threads
        self._now_s = now_s
        self._checked: dict[tuple[str | None, str], tuple[float, CatalogError | None]] = {}

    async def check(self, authorization: str | None, warehouse: str) -> None:
        key = (authorization, warehouse)
        checked_s, error = self._checked.get(key, (float("-inf"), None))
        if self._now_s() - checked_s >= VALID_S:
            now_s = self._now_s()
            error = await asyncio.get_running_loop().run_in_executor(self._threads, self._refusal, *key)
            if len(self._checked) >= REMEMBERED_MAX:
                self._checked.clear()
            self._checked[key] = (now_s, error)
        if error is not None:
            raise error

    def _refusal(self, authorization: str | None, warehouse: str) -> CatalogError | None:
        try:
            self._check(authorization, warehouse)
        except CatalogError as error:
            return error
        return None


class Rights:
    """The rights of one subscriber."""

    __slots__ = ("_authorization", "_checks", "_warehouse")

    def __init__(self, checks: RightsChecks, authorization: str | None, warehouse: str) -> None:
        self._checks = checks
        self._authorization = authorization
        self._warehouse = warehouse

    async def check(self) -> None:
        await self._checks.check(self._authorization, self._warehouse)
