"""/ws: who may connect. What is refused is refused as HTTP, before the connection becomes a WebSocket."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import orjson

from catalog.api.errors import error_body
from catalog.errors import CatalogError, Unavailable
from catalog.names import check_warehouse_name
from ingest.door.access import text
from ingest.door.asgi import Receive, Scope, Send
from ingest.door.asked import Headers, priority_of, query_words
from ingest.door.room import Room
from ingest.door.sockets.connection import Connection
from ingest.door.sockets.limits import Refusal

CLIENT_CHARS_MAX = 255
REASONS: dict[Refusal, str] = {
    "rate_limited": "Too many new connections in a second",
    "ip_limit": "Too many connections from this address",
    "connection_limit": "Too many connections of this source, or in all",
}


class Entrance:
    """The ASGI application of /ws.

    `foreign` tells from its headers why a request is not taken, if it comes from a web page of another site:
    browsers let any page connect anywhere, so whoever takes requests without tokens must look.
    """

    def __init__(self, room: Room, foreign: Callable[[Headers], str | None] | None = None) -> None:
        self._room = room
        self._foreign = foreign

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()  # websocket.connect
        room = self._room
        headers: Headers = dict(scope["headers"])
        reason = self._foreign(headers) if self._foreign is not None else None
        if reason is not None:
            await _answer(send, 403, error_body(reason, "ForbiddenException", 403), [])
            return
        address = scope["client"][0] if scope.get("client") else ""
        client = _name(headers, b"x-client-id")
        refusal = room.connections.enter(address, client, time.monotonic())
        if refusal is not None:
            await self._refuse(send, refusal)
            return
        connection: Connection | None = None
        try:
            connection = await self._enter(scope, headers, client, receive, send)
            if connection is not None:
                # Thousands may be idle for hours; what each was opened with is not needed any more.
                del headers
                scope.clear()
                await connection.serve()
        finally:
            room.connections.leave(address, connection.source if connection is not None else client)
            room.measures.connections(room.connections.open)

    async def _enter(
        self, scope: Scope, headers: Headers, client: str | None, receive: Receive, send: Send
    ) -> Connection | None:
        room = self._room
        authorization = text(headers.get(b"authorization"))
        try:
            if room.is_stopping:
                raise Unavailable("the server is stopping: connect again in a moment")
            warehouse = query_words(scope["query_string"]).get("warehouse", room.settings.default_warehouse)
            check_warehouse_name(warehouse)
            priority = priority_of(headers)
            await room.take(0, lambda: room.access.writer(authorization, warehouse))
        except CatalogError as error:
            body = error_body(error.message, error.type, error.status)
            await _answer(send, error.status, body, [])
            return None
        rate = room.connections.rate(time.monotonic(), time.time())
        await send({"type": "websocket.accept", "headers": rate.as_headers()})
        room.measures.connections(room.connections.open)
        return Connection(
            room,
            receive,
            send,
            warehouse=warehouse,
            authorization=authorization,
            client=client,
            shard=_name(headers, b"x-shard-name"),
            priority=priority,
        )

    async def _refuse(self, send: Send, refusal: Refusal) -> None:
        room = self._room
        room.measures.connection_refused(refusal)
        rate = room.connections.rate(time.monotonic(), time.time())
        error = {"message": REASONS[refusal], "type": "TooManyRequestsException", "code": 429}
        body = orjson.dumps({"error": error, "reason": refusal, "retryAfter": 1})
        await _answer(send, 429, body, [(b"retry-after", b"1"), *rate.as_headers()])


async def _answer(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    start = {"type": "websocket.http.response.start", "status": status}
    await send({**start, "headers": [(b"content-type", b"application/json"), *headers]})
    await send({"type": "websocket.http.response.body", "body": body})
    # uvicorn closes the connection in its next step, and would log an error if we were gone before that.
    await asyncio.sleep(0)


def _name(headers: Headers, name: bytes) -> str | None:
    """A name that a client gives itself; one that cannot be shown is none."""
    given = headers.get(name, b"").decode("utf-8", "replace").strip()
    return given if given and len(given) <= CLIENT_CHARS_MAX and given.isprintable() else None
