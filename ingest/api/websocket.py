"""Accept or refuse connections to /ws. A refusal is an HTTP response, sent before the connection becomes a
WebSocket.
"""

from __future__ import annotations

import time

import orjson
from fastapi import APIRouter, Response, WebSocket

from catalog.api.errors import error_body
from catalog.errors import CatalogError, Unavailable
from ingest.api.changes import NAME_CHARS_MAX, priority_of
from ingest.api.context import ApiContext, ContextOf
from ingest.api.websocket_connection import Connection
from ingest.api.websocket_limits import Refusal

router = APIRouter()

JSON = "application/json"
REASONS: dict[Refusal, str] = {
    "rate_limited": "Too many new connections in a second",
    "ip_limit": "Too many connections from this address",
    "connection_limit": "Too many connections of this source, or in total",
}


@router.websocket("/ws")
async def changes_websocket(websocket: WebSocket, api: ContextOf) -> None:
    address = websocket.client.host if websocket.client is not None else ""
    client = _name(websocket, "x-client-id")
    refusal = api.connections.enter(address, client, time.monotonic())
    if refusal is not None:
        api.metrics.connection_refused(refusal)
        await websocket.send_denial_response(_too_many(api, refusal))
        return
    connection: Connection | None = None
    try:
        connection = await _accept(websocket, api, client)
        if connection is not None:
            await connection.serve()
    finally:
        api.connections.leave(address, connection.source if connection is not None else client)
        api.metrics.connections(api.connections.open)


async def _accept(websocket: WebSocket, api: ApiContext, client: str | None) -> Connection | None:
    """Return the open connection; None if it was refused."""
    authorization = websocket.headers.get("authorization")
    try:
        if api.is_stopping:
            raise Unavailable("the server is stopping: connect again in a moment")
        warehouse = websocket.query_params.get("warehouse", api.settings.default_warehouse)
        priority = priority_of(websocket.headers.get("x-priority"))
        # A reader may subscribe. Each batch requires the role writer.
        check = api.access.writer if api.subscriptions is None else api.access.reader
        await api.run_parse(0, lambda: check(authorization, warehouse))
    except CatalogError as error:
        body = error_body(error.message, error.type, error.status)
        await websocket.send_denial_response(Response(body, error.status, media_type=JSON))
        return None
    rate = api.connections.rate(time.monotonic(), time.time())
    await websocket.accept(headers=rate.as_headers())
    api.metrics.connections(api.connections.open)
    return Connection(
        api,
        websocket.receive,
        websocket.send,
        warehouse=warehouse,
        authorization=authorization,
        client=client,
        shard=_name(websocket, "x-shard-name"),
        priority=priority,
    )


def _too_many(api: ApiContext, refusal: Refusal) -> Response:
    rate = api.connections.rate(time.monotonic(), time.time())
    error = {"message": REASONS[refusal], "type": "TooManyRequestsException", "code": 429}
    response = Response(
        orjson.dumps({"error": error, "reason": refusal, "retryAfter": 1}),
        429,
        {"retry-after": "1"},
        media_type=JSON,
    )
    response.raw_headers.extend(rate.as_headers())
    return response


def _name(websocket: WebSocket, header: str) -> str | None:
    """Return a name that a client sends, if it is printable."""
    raw = websocket.headers.get(header, "").encode("latin-1")
    given = raw.decode("utf-8", "replace").strip()
    return given if given and len(given) <= NAME_CHARS_MAX and given.isprintable() else None
