"""Subscriptions of WebSocket connections, as `ingest.api.ports.Subscriptions`.

{"type": "subscribe", "id": "a", "tables": ["shop.*"], "operations": [], "where": …, "columns": [],
 "from": …, "snapshot": false}
{"type": "change", "subscription": "a", "token": …, "data": {…}}
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from catalog.errors import Invalid
from query.feed.events import Message
from query.feed.feed import Feed, SubscribeRequest
from query.feed.streams import send_all

Json = dict[str, Any]
HEARTBEAT: Json = {"type": "heartbeat"}


class WebSocketFeed:
    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    async def run(
        self,
        message: Mapping[str, Any],
        warehouse: str,
        authorization: str | None,
        send: Callable[[list[Json]], Awaitable[None]],
    ) -> None:
        """Send the messages of a subscription until it is cancelled or ends."""
        subscription = await self._feed.open(request_of(message, warehouse), authorization)
        await subscription.prepare()

        async def write(messages: list[Message]) -> None:
            await send([_json(one) for one in messages] or [HEARTBEAT])

        self._feed.enter("ws")
        try:
            await send_all(subscription, write, transport="ws", is_queued=True)
        finally:
            self._feed.leave("ws")


def _json(message: Message) -> Json:
    if message.kind == "heartbeat":
        return HEARTBEAT
    return {"type": message.kind, "token": message.cursor.token, "data": message.data}


def request_of(message: Mapping[str, Any], warehouse: str) -> SubscribeRequest:
    """Parse a message. Invalid if a field has another type."""
    where, from_, snapshot = message.get("where"), message.get("from"), message.get("snapshot", False)
    if where is not None and not isinstance(where, str):
        raise Invalid("where must be a string")
    if isinstance(from_, bool) or (from_ is not None and not isinstance(from_, str | int)):
        raise Invalid("from must be a token, a number or a time")
    if not isinstance(snapshot, bool):
        raise Invalid("snapshot must be true or false")
    return SubscribeRequest(
        warehouse,
        _texts(message, "tables"),
        _texts(message, "operations"),
        where,
        _texts(message, "columns"),
        None if from_ is None else str(from_),
        snapshot=snapshot,
    )


def _texts(message: Mapping[str, Any], name: str) -> list[str] | None:
    value = message.get(name)
    if value is None:
        return None
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
        raise Invalid(f"{name} must be a list of strings")
    return value
