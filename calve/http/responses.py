"""Error responses that middleware sends in place of the application's response."""

from __future__ import annotations

import asyncio

from starlette.types import Receive, Send

from catalog.api.errors import error_body

LINGER_S = 2.0
LINGER_BYTES_MAX = 256 * 2**20


async def send_error(send: Send, status: int, type_: str, message: str, *, more_body: bool = False) -> None:
    """Send an error in Iceberg's form; the connection is closed after it."""
    body = error_body(message, type_, status)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": more_body})


async def refuse_unread(receive: Receive, send: Send, status: int, type_: str, message: str) -> None:
    """Send an error while the client may still be sending its body, then read on for a moment.

    A server that closes a connection with unread bytes resets it, and the client loses the response.
    """
    await send_error(send, status, type_, message, more_body=True)
    left = LINGER_BYTES_MAX
    try:
        async with asyncio.timeout(LINGER_S):
            while left > 0:
                received = await receive()
                if received["type"] != "http.request" or not received.get("more_body", False):
                    break
                left -= len(received.get("body", b""))
    except TimeoutError:
        pass  # the client had enough time to read the response
    await send({"type": "http.response.body", "body": b"", "more_body": False})
