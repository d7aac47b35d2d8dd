"""The messages to be sent on one connection, in order. It has a task only while messages wait."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.websockets import WebSocketDisconnect

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
        self.gone = False  # the client is gone

    def __len__(self) -> int:
        return len(self._waiting) if self._waiting is not None else 0

    def put(self, text: str) -> None:
        self._put({"type": "websocket.send", "text": text})

    def close(self, code: int, reason: str) -> None:
        """After all earlier messages."""
        self._put({"type": "websocket.close", "code": code, "reason": reason})

    async def drained(self) -> None:
        """Wait until everything is sent, or the client is gone."""
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
        ):  # the client is gone, or the connection is closed
            self.gone = True
            waiting.clear()
        finally:
            self._writer = None
            drained, self._drained = self._drained, None
            if drained is not None and not drained.done():
                drained.set_result(None)
