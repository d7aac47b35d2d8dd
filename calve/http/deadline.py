"""A time limit until a response begins.

When the deadline passes before that, the client gets

- 408 while the body is still arriving,
- 504 for a read,
- 504 as "commit state unknown" for everything else: the change may still happen.

The application is never cancelled, because that would interrupt a commit. The database and storage have their
own timeouts. What the application sends after the deadline is dropped.
"""

from __future__ import annotations

import asyncio
import logging
import time

from prometheus_client import Counter
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from calve.http.body import has_body
from calve.http.responses import send_error

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
UNKNOWN = "The server did not finish in time. The change may still happen: check before you try again."

_log = logging.getLogger(__name__)
_exceeded = Counter("calve_http_deadline_exceeded_total", "Requests answered with 408 or 504.")


class Deadline:
    def __init__(self, app: ASGIApp, *, timeout_s: float) -> None:
        if timeout_s <= 0:
            raise ValueError("timeout_s must be positive")
        self.app = app
        self._timeout_s = timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        scope["calve.deadline_s"] = time.monotonic() + self._timeout_s
        exchange = _Exchange(scope, receive, send)
        task = asyncio.create_task(self._run(scope, exchange))
        done, _ = await asyncio.wait({task}, timeout=self._timeout_s)
        if not done and not exchange.started:
            exchange.expired = True
            _exceeded.inc()
            await send_error(send, *exchange.timeout_error())
        # The server waits for this coroutine when it stops, so it ends with the application and not before.
        await asyncio.wait({task})
        if exchange.expired:
            _log_late_failure(task)
        else:
            task.result()

    async def _run(self, scope: Scope, exchange: _Exchange) -> None:
        await self.app(scope, exchange.receive, exchange.send)


class _Exchange:
    """One request and its response, as seen from outside the application."""

    __slots__ = ("_is_safe", "_receive", "_send", "arriving", "expired", "started")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        self._is_safe = scope["method"] in SAFE_METHODS
        self.arriving = has_body(scope)
        self.started = self.expired = False

    async def receive(self) -> Message:
        message = await self._receive()
        if not message.get("more_body", False):
            self.arriving = False
        return message

    async def send(self, message: Message) -> None:
        if not self.expired:
            self.started = True
            await self._send(message)

    def timeout_error(self) -> tuple[int, str, str]:
        if self.arriving:
            return 408, "RequestTimeoutException", "The body did not arrive in time."
        if self._is_safe:
            return 504, "GatewayTimeoutException", "The response was not ready in time; try again."
        return 504, "CommitStateUnknownException", UNKNOWN


def _log_late_failure(task: asyncio.Task[None]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, ClientDisconnect):
        _log.error("request failed after its deadline", exc_info=error)
