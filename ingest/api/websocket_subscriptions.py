"""Subscriptions on one WebSocket connection: messages start and end them, and each has its own task.

`ApiContext` gets the change feed as a `Subscriptions`; ingest does not depend on it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import orjson

from catalog.errors import CatalogError
from ingest.api.ports import Subscriptions
from ingest.api.websocket_messages import Json
from ingest.api.websocket_send_queue import SendQueue

PER_CONNECTION_MAX = 10
ID_CHARS_MAX = 100

log = logging.getLogger(__name__)


class ConnectionSubscriptions:
    __slots__ = ("_authorization", "_out", "_source", "_tasks", "_warehouse")

    def __init__(
        self, source: Subscriptions | None, out: SendQueue, warehouse: str, authorization: str | None
    ) -> None:
        self._source = source
        self._out = out
        self._warehouse = warehouse
        self._authorization = authorization
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def answer(self, message: Json) -> None:
        """Start or end a subscription."""
        name = message.get("id", "")
        if not isinstance(name, str) or len(name) > ID_CHARS_MAX:
            self._send(
                "", {"type": "error", "data": _error(f"id must be a string of at most {ID_CHARS_MAX}")}
            )
            return
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()
        if message["type"] == "unsubscribe":
            self._send(name, {"type": "unsubscribed"})
        elif self._source is None:
            self._send(name, {"type": "error", "data": _error("This server has no subscriptions")})
        elif len(self._tasks) >= PER_CONNECTION_MAX:
            text = f"A connection has at most {PER_CONNECTION_MAX} subscriptions"
            self._send(name, {"type": "error", "data": _error(text)})
        else:
            self._tasks[name] = asyncio.get_running_loop().create_task(self._run(self._source, name, message))

    def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()

    async def _run(self, source: Subscriptions, name: str, message: Json) -> None:
        async def send(messages: list[Json]) -> None:
            for one in messages:
                self._send(name, one)
            await asyncio.shield(self._out.drained())  # other messages wait for the same future

        try:
            await source.run(message, self._warehouse, self._authorization, send)
        except CatalogError as error:
            self._send(name, {"type": "error", "data": _error(error.message, error.type, error.status)})
        except TimeoutError:
            self._out.close(1008, "the client does not read")
        except Exception:
            log.exception("a subscription failed")
            text = "The server failed; subscribe again with the last token"
            self._send(name, {"type": "error", "data": _error(text, "InternalServerError", 500)})
        if self._tasks.get(name) is asyncio.current_task():
            del self._tasks[name]

    def _send(self, name: str, message: Json) -> None:
        self._out.put(orjson.dumps({**message, "subscription": name}).decode())


def _error(text: str, type_: str = "BadRequestException", code: int = 400) -> dict[str, Any]:
    return {"message": text, "type": type_, "code": code}
