"""Send messages on one WebSocket connection, in order, and close it. A task exists only while
messages wait.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from starlette.websockets import WebSocketDisconnect

from ingest.api import websocket_messages as messages
from ingest.api.context import ApiContext, now_ms
from ingest.api.websocket_limits import MessageLimit
from ingest.api.websocket_messages import Batch, Json, Malformed, NackReason

Send = Callable[[dict[str, Any]], Awaitable[None]]


class SendQueue:
    __slots__ = ("_drained", "_send", "_waiting", "_writer", "gone")

    def __init__(self, send: Send) -> None:
        self._send = send
        self._waiting: deque[dict[str, Any]] | None = (
            None  # created with the first message: most connections are idle
        )
        self._writer: asyncio.Task[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self.gone = False  # the client has disconnected

    def __len__(self) -> int:
        return len(self._waiting) if self._waiting is not None else 0

    def put(self, text: str) -> None:
        self._put({"type": "websocket.send", "text": text})

    def close(self, code: int, reason: str) -> None:
        """Close the connection after all earlier messages."""
        self._put({"type": "websocket.close", "code": code, "reason": reason})

    async def drained(self) -> None:
        """Wait until everything is sent, or the client has disconnected."""
        if self._writer is None:
            return
        if self._drained is None:
            self._drained = asyncio.get_running_loop().create_future()
        await self._drained

    def _put(self, message: dict[str, Any]) -> None:
        if self.gone:
            return
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append(message)
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._write(self._waiting))

    async def _write(self, waiting: deque[dict[str, Any]]) -> None:
        try:
            while waiting:
                await self._send(waiting.popleft())
        except (
            OSError,
            RuntimeError,
            WebSocketDisconnect,
        ):  # the client has disconnected, or the connection is closed
            self.gone = True
            waiting.clear()
        finally:
            self._writer = None
            drained, self._drained = self._drained, None
            if drained is not None and not drained.done():
                drained.set_result(None)


POLICY_VIOLATION = 1008
NORMAL = 1000


class Sender:
    """Sends messages on one connection and closes it."""

    __slots__ = ("_api", "_limit", "_violations", "closing", "out")

    def __init__(self, api: ApiContext, send: Send) -> None:
        self._api = api
        self._limit: MessageLimit | None = None  # until the first message
        self._violations = 0
        self.closing = False
        self.out = SendQueue(send)

    def send(self, message: Json) -> None:
        self.out.put(orjson.dumps(message).decode())

    def refuse(self, malformed: Malformed) -> None:
        """Send the nack of a message that cannot be used."""
        limit = self._limit
        is_rate = malformed.reason == "rate_limited"
        self.nack(
            malformed.reason,
            malformed.message,
            sequence=malformed.sequence,
            correlation=malformed.correlation,
            retry_ms=limit.wait_ms(time.monotonic()) if is_rate and limit is not None else None,
            size=malformed.size,
        )
        if malformed.size is not None:
            self._violated()
        elif self.closing:
            self.close(malformed.reason)

    def nack(
        self,
        reason: NackReason,
        text: str,
        *,
        batch: Batch | None = None,
        sequence: int = 0,
        correlation: str | None = None,
        retry_ms: int | None = None,
        size: tuple[int, int] | None = None,
    ) -> None:
        self._api.metrics.nack(reason)
        limit = self._limit
        self.send(
            messages.nack(
                reason,
                text,
                now_ms=now_ms(),
                sequence=batch.sequence if batch is not None else sequence,
                correlation=batch.correlation if batch is not None else correlation,
                retry_ms=retry_ms,
                size=size,
                rate=limit.rate(time.monotonic(), time.time()) if limit is not None else None,
            )
        )

    def close(self, reason: str, code: int = POLICY_VIOLATION) -> None:
        self.closing = True
        self.out.close(code, reason)

    def _violated(self) -> None:
        self._violations += 1
        if self._violations >= self._api.settings.size_violations_max:
            self.close("too many messages or events beyond the size limit")
