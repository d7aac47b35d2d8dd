"""ASGI as the door uses it: the types, a whole body in, a whole answer out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from catalog.api.calls import Answer

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


async def body_of(scope: Scope, receive: Receive) -> bytes:
    """The whole body: the edge has read it, within its limit and as long as Content-Length says."""
    body: bytes | None = scope.get("calve.body")
    if body is not None:
        return body
    parts, more = [], True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


def headers_of(scope: Scope) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] | None = scope.get("calve.headers")
    return found if found is not None else dict(scope["headers"])


async def reply(send: Send, answer: Answer) -> None:
    body = answer.body
    headers = [*answer.headers, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
