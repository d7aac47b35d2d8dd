"""Send a subscription as a stream of server-sent events, with heartbeats and a limit for slow consumers.

The stream reads ahead of its client by one piece of `PIECE_BYTES` and by the send buffer of the connection. A
client that accepts nothing for `SLOW_S` gets the message `slow-consumer` with a token to resume from, and the
stream ends. A client that accepts nothing for `GONE_S` more is disconnected.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from catalog.errors import CatalogError
from catalog.shutdown import stopping
from query.feed import measures
from query.feed.cursors import Cursor
from query.feed.errors import MustRefetch
from query.feed.events import HEARTBEAT, Message
from query.feed.measures import Transport
from query.feed.subscription import Subscription

PIECE_BYTES = 64 * 1024
HEARTBEAT_S = 20.0
SLOW_S = 30.0
GONE_S = 60.0
RETRY_MS = 1000
SLOW = "The client did not read for a while. Subscribe again with this token, or read faster"


def error_message(error: CatalogError, cursor: Cursor) -> Message:
    """Return the last message of a stream that fails after it has begun."""
    body = {"message": error.message, "type": error.type, "code": error.status}
    return Message("must-refetch" if isinstance(error, MustRefetch) else "error", body, cursor)


Write = Callable[[list[Message]], Awaitable[None]]  # an empty list is a heartbeat


async def pieces(
    subscription: Subscription, timeout_s: float | None = None, heartbeat_s: float = HEARTBEAT_S
) -> AsyncGenerator[list[Message]]:
    """Yield the messages in pieces, until the timeout, the stop of the server, or an error."""
    until_s = float("inf") if timeout_s is None else time.monotonic() + timeout_s
    try:
        while not stopping.is_set():
            piece: list[Message] = []
            size = 0
            async for message in subscription.pending():
                piece.append(message)
                size += len(message.frame)
                if size >= PIECE_BYTES or message.kind == "heartbeat":
                    yield piece
                    piece, size = [], 0
            if piece:
                yield piece
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return
            is_more = await subscription.wait(min(left_s, heartbeat_s))
            if not is_more and left_s > heartbeat_s and not stopping.is_set():
                yield []
    except CatalogError as error:
        yield [error_message(error, subscription.cursor)]


async def send_all(
    subscription: Subscription,
    write: Write,
    timeout_s: float | None = None,
    *,
    transport: Transport = "sse",
    is_queued: bool = False,
    slow_s: float = SLOW_S,
    gone_s: float = GONE_S,
) -> None:
    """Write the messages to a client until either side ends the connection. TimeoutError if the client does
    not read.

    `is_queued`: messages that were passed to `write` are sent even if `write` is cancelled.
    """
    sent = subscription.cursor
    found = pieces(subscription, timeout_s)
    try:
        async for piece in found:
            try:
                async with asyncio.timeout(slow_s):
                    await write(piece)
            except TimeoutError:
                last = subscription.cursor if is_queued else sent
                notice = [Message("slow-consumer", {"message": SLOW}, last)]
                measures.sent(transport, notice)
                async with asyncio.timeout(gone_s):
                    await write(notice)
                return
            measures.sent(transport, piece)
            sent = subscription.cursor
    finally:
        await found.aclose()


class EventStream(Response):
    """The response of a subscription. It has no length and ends with the connection."""

    media_type = "text/event-stream"

    def __init__(
        self, subscription: Subscription, timeout_s: float | None, on_end: Callable[[], None]
    ) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._subscription = subscription
        self._timeout_s = timeout_s
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        streaming = asyncio.ensure_future(self._stream(send))
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait({streaming, gone}, return_when=asyncio.FIRST_COMPLETED)
            if streaming.done():
                streaming.result()
        finally:
            self._on_end()
            streaming.cancel()
            gone.cancel()
            await asyncio.gather(streaming, gone, return_exceptions=True)

    async def _stream(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})

        async def body(piece: bytes) -> None:
            await send({"type": "http.response.body", "body": piece, "more_body": True})

        async def write(messages: list[Message]) -> None:
            await body(b"".join(message.frame for message in messages) or HEARTBEAT)

        await body(b"retry: %d\n\n" % RETRY_MS)
        await send_all(self._subscription, write, self._timeout_s)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
