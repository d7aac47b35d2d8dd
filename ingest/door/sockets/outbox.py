"""What goes out on one connection, in order, without a task of its own while there is nothing to say."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from ingest.door.asgi import Send


class Outbox:
    __slots__ = ("_drained", "_send", "_waiting", "_writer", "gone")

    def __init__(self, send: Send) -> None:
        self._send = send
        self._waiting: deque[dict[str, Any]] | None = None  # made at the first message: most never send one
        self._writer: asyncio.Task[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self.gone = False  # nobody listens any more

    def __len__(self) -> int:
        return len(self._waiting) if self._waiting is not None else 0

    def put(self, text: str) -> None:
        self._put({"type": "websocket.send", "text": text})

    def close(self, code: int, reason: str) -> None:
        """After all that was put before."""
        self._put({"type": "websocket.close", "code": code, "reason": reason})

    async def drained(self) -> None:
        """Until everything is out, or nobody listens."""
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
        except (OSError, RuntimeError):  # the client is gone, or the connection was closed meanwhile
            self.gone = True
            waiting.clear()
        finally:
            self._writer = None
            drained, self._drained = self._drained, None
            if drained is not None and not drained.done():
                drained.set_result(None)
