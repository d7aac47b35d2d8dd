"""One request and its answer, as the edge sees them; and the deadline of all that are open.

An `Exchange` passes the application's answer on, with the headers that every answer has. If the deadline
comes first, it answers itself, and what the application says afterwards is dropped:

- while the body is still arriving: 408, and the application is never called;
- a read: 504;
- anything else: 504 as "commit state unknown". It may have happened, and the client is told so.

In no case is the application cancelled: a commit is never cut in half, and what waits for a database or a
store has the timeouts of those.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from calve.serve.answers import Whole, error_body
from calve.serve.bodies import Message
from calve.telemetry.metrics import metrics

Scope = dict[str, Any]
Send = Callable[[Message], Awaitable[None]]

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
CLIENT_CLOSED = 499  # never sent: the client is gone. The number that others log for it too.
TICK_S = 1.0
UNKNOWN = "The server did not finish in time. The change may still happen: look before you try again."

NOSNIFF = (b"x-content-type-options", b"nosniff")
_expired = metrics.counter("calve_http_deadline_exceeded_total", "Requests answered with 408 or 504.")
_in_flight = metrics.gauge("calve_http_requests_in_flight", "Requests being served.")


class Exchange:
    """One request and its answer."""

    __slots__ = ("_late", "_send", "expired", "id", "reading", "scope", "started_s", "status", "whole")

    def __init__(self, scope: Scope, send: Send, request_id: str, started_s: float) -> None:
        self.scope = scope
        self.id = request_id
        self.started_s = started_s
        self.status = 0  # of the answer, once there is one
        self.expired = False
        self.reading = False  # the body has not arrived yet
        self.whole: Callable[[Whole], Awaitable[None]] | None = None  # the server's way to take one
        self._send = send
        self._late: asyncio.Task[None] | None = None

    def send(self, message: Message) -> Awaitable[None]:
        """The application's way to answer. A plain function: one coroutine less for each message."""
        if self.expired:
            return _dropped()
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [*message.get("headers", ()), (b"x-request-id", self.id.encode()), NOSNIFF]
            message = {**message, "headers": headers}
        return self._send(message)

    def reply(self, answer: Whole) -> Awaitable[None]:
        """The application's way to answer with one message."""
        if self.expired:
            return _dropped()
        assert self.whole is not None, "offered only where the server takes it"
        self.status = answer[0]
        return self.whole((answer[0], (*answer[1], (b"x-request-id", self.id.encode()), NOSNIFF), answer[2]))

    async def answer(self, status: int, error_type: str, message: str, *, linger: bool = False) -> None:
        """Answer with an error and end the connection. With `linger` the answer is left open for `finish`."""
        body = error_body(status, error_type, message)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
            (b"x-request-id", self.id.encode()),
            NOSNIFF,
        ]
        self.status = status
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body, "more_body": linger})

    async def finish(self) -> None:
        """End an answer that was left open."""
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    def expire(self) -> None:
        """The deadline has come."""
        if self.status:
            return  # the answer is on its way
        self.expired = True
        _expired.labels().add()
        if self.reading:
            answer = 408, "RequestTimeoutException", "The body did not arrive in time."
        elif self.scope["method"] in SAFE_METHODS:
            answer = 504, "GatewayTimeoutException", "The answer was not ready in time; try again."
        else:
            answer = 504, "CommitStateUnknownException", UNKNOWN
        self.status = answer[0]
        # When the answer is out, a `receive` that waits for more of the body sees the end of the connection.
        self._late = asyncio.get_running_loop().create_task(self.answer(*answer))


class Deadlines:
    """All open exchanges, oldest first. One timer for all: a timer each would cost more than the rest."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._tick_s = min(TICK_S, timeout_s / 4)
        self._open: dict[Exchange, None] = {}
        self._ticking = False

    def add(self, exchange: Exchange) -> None:
        self._open[exchange] = None
        if not self._ticking:
            self._ticking = True
            asyncio.get_running_loop().call_later(self._tick_s, self._tick)

    def remove(self, exchange: Exchange) -> None:
        self._open.pop(exchange, None)

    def _tick(self) -> None:
        _in_flight.labels().set(len(self._open))
        latest_s = time.monotonic() - self._timeout_s
        for exchange in list(self._open):
            if exchange.started_s > latest_s:
                break  # all others are younger
            exchange.expire()
        self._ticking = bool(self._open)
        if self._ticking:
            asyncio.get_running_loop().call_later(self._tick_s, self._tick)


async def _dropped() -> None:
    """An answer that comes too late."""
