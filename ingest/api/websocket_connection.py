"""Serve one WebSocket connection: read messages in order, answer each, enforce the limits.

Batches are appended to the journal in the order of arrival. Several may wait for COMMIT at once; each ack is
sent after its COMMIT. A batch is stored even if its client has disconnected.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from starlette.types import Message

from catalog.errors import CatalogError
from ingest.api import websocket_messages as messages
from ingest.api.context import ApiContext, PendingAppend, now_ms
from ingest.api.flush import flush
from ingest.api.results import AppendResult, SourceState, note_acknowledged
from ingest.api.status import short_status
from ingest.api.websocket_limits import MessageLimit
from ingest.api.websocket_messages import Batch, Json, Malformed
from ingest.api.websocket_send_queue import NORMAL, Send, Sender
from ingest.api.websocket_subscriptions import ConnectionSubscriptions
from ingest.change import RequestContext
from ingest.formats.detect import parse, parse_events
from ingest.formats.json_body import is_sound, may_be_deep
from ingest.journal.receipts import AppendReceipt

log = logging.getLogger(__name__)
Receive = Callable[[], Awaitable[Message]]

QUEUE_MAX = 256
FLUSH_WAIT_S = 30.0
FORMAT = "native"


class Connection(Sender):
    __slots__ = (
        "_authorization",
        "_capacity",
        "_client",
        "_flushing",
        "_in_flight",
        "_priority",
        "_receive",
        "_shard",
        "_subscriptions",
        "_warehouse",
        "source",
    )

    def __init__(
        self,
        api: ApiContext,
        receive: Receive,
        send: Send,
        *,
        warehouse: str,
        authorization: str | None,
        client: str | None,
        shard: str | None,
        priority: int,
    ) -> None:
        super().__init__(api, send)
        self._receive = receive
        self._warehouse = warehouse
        self._authorization = authorization
        self._client = client
        self._shard = shard
        self._priority = priority
        self._in_flight = 0
        self._capacity: asyncio.Future[None] | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._subscriptions: ConnectionSubscriptions | None = None
        self.source: str | None = client  # the source for which the connection is counted

    async def serve(self) -> None:
        """Serve until either side closes the connection."""
        try:
            await self._serve()
        finally:
            if self._subscriptions is not None:
                self._subscriptions.close()

    async def _serve(self) -> None:
        while not self.closing:
            message = await self._receive()
            if message["type"] != "websocket.receive":
                break
            data = message.get("bytes")
            if data is None:
                data = message["text"].encode()
            await self._on(data)
            if self._in_flight >= self._api.settings.batches_in_flight_max or len(self.out) > QUEUE_MAX:
                await self._wait_for_capacity()
        await self.out.drained()

    # -- messages in

    async def _on(self, raw: bytes) -> None:
        if raw == b"ping":
            self.out.put("pong")
            return
        started_s = time.monotonic()
        try:
            self._require_size(len(raw))
            found = await self._api.run_parse(len(raw), partial(self._read, raw, started_s), patient=True)
        except Malformed as malformed:
            self.refuse(malformed)
        except Exception:
            log.exception("a message failed")
            self.nack("internal_error", "The server failed; send the message again")
        else:
            if isinstance(found, tuple):
                self._watch(*found, started_s)
            else:
                await self._answer(found)

    def _require_size(self, size: int) -> None:
        size_max = self._api.settings.message_bytes_max
        if size > size_max:
            text = f"The message has {size} bytes; at most {size_max} are allowed"
            raise Malformed("payload_too_large", text, size=(size_max, size))

    def _read(self, raw: bytes, now_s: float) -> Json | tuple[Batch, PendingAppend | CatalogError]:
        """Return a message that is not a batch; or a batch with its append, or with the error that prevented
        it.
        """
        if self._limit is None:
            self._limit = MessageLimit(self._api.settings, now_s)
        is_one_too_many = not self._limit.take(now_s)
        message, is_plain = messages.parse(raw)
        if is_one_too_many:
            raise messages.refusal(message, "rate_limited", "Too many messages in a second")
        if message["type"] != "cdc_batch":
            return message
        if self._api.is_stopping:
            raise messages.refusal(message, "shutting_down", "The server is stopping")
        batch = messages.batch_of(message, self._client, self._shard)
        self._join(batch.source, message)
        try:
            self._api.access.writer(self._authorization, self._warehouse)
            return batch, _append(
                self._api,
                self._warehouse,
                batch,
                raw,
                message,
                is_plain=is_plain,
                priority=self._priority,
            )
        except CatalogError as error:
            return batch, error

    def _join(self, source: str, message: Json) -> None:
        if self.source is None:
            if not self._api.connections.join(source):
                self.closing = True
                raise messages.refusal(message, "connection_limit", f"{source} has too many connections")
            self.source = source

    # -- a batch that waits for COMMIT

    def _watch(self, batch: Batch, pending: PendingAppend | CatalogError, started_s: float) -> None:
        if isinstance(pending, CatalogError):
            self._failed(batch, pending)
            return
        api = self._api
        state = api.sources.received(
            self._warehouse, batch.source, batch.sequence, pending.summary.events, now_ms()
        )
        self._in_flight += 1
        loop = asyncio.get_running_loop()
        settled = partial(self._settled, batch, pending, state, started_s)

        def wake(future: Future[AppendReceipt]) -> None:
            try:
                loop.call_soon_threadsafe(settled, future)
            except RuntimeError:  # the event loop has ended; stored changes stay stored
                log.debug("no event loop for a receipt")

        pending.receipt.add_done_callback(wake)

    def _settled(
        self,
        batch: Batch,
        pending: PendingAppend,
        state: SourceState,
        started_s: float,
        future: Future[AppendReceipt],
    ) -> None:
        """Send the ack after COMMIT, or the nack after a failure."""
        self._in_flight -= 1
        api = self._api
        error = future.exception()
        if isinstance(error, CatalogError):
            self._failed(batch, error)
        elif error is not None:
            log.error("a batch could not be stored", exc_info=error)
            self.nack("internal_error", "The server failed; send the batch again", batch=batch)
        else:
            api.failures = 0
            result = AppendResult(self._warehouse, pending.summary, future.result())
            api.metrics.acknowledged("ws", result, time.monotonic() - started_s)
            note_acknowledged(state, batch.sequence, now_ms())
            self._ack(batch, result)
        self._wake()

    def _ack(self, batch: Batch, result: AppendResult) -> None:
        assert self._limit is not None, "a batch has been counted"
        api = self._api
        level, circuit = api.last_usage.level, api.circuit
        self.send(
            messages.batch_ack(
                batch, result, level=level, circuit=circuit, limit=self._limit, settings=api.settings
            )
        )

    def _failed(self, batch: Batch, error: CatalogError) -> None:
        self._api.note_failure(error)
        reason, retry_ms = messages.nack_reason(error, self._priority, self._api.settings)
        if reason == "internal_error":
            log.warning("a batch was not stored", extra={"reason": error.message})
        self.nack(reason, error.message, batch=batch, retry_ms=retry_ms)
        if isinstance(error, messages.LOST_RIGHTS):
            self.close("not allowed")

    # -- other messages

    async def _answer(self, message: Json) -> None:
        kind = message["type"]
        if kind == "heartbeat":
            self.send(messages.pong(message, now_ms()))
        elif kind == "connect":
            await self._connect(message)
        elif kind == "flush_request":
            self._flush(message)
        elif kind in messages.SUBSCRIBE_KINDS:
            self._subscribe(message)
        else:
            await self._disconnect()

    async def _connect(self, message: Json) -> None:
        try:
            self._join(messages.source_of(message, self._client, self._shard), message)
        except Malformed as malformed:
            self.refuse(malformed)
            return
        try:
            fields = await self._api.run_query(lambda: short_status(self._api))
        except CatalogError as error:
            self.nack("internal_error", error.message, correlation=messages.correlation_of(message))
            return
        self.send(messages.status(message, now_ms(), fields))

    def _subscribe(self, message: Json) -> None:
        if self._subscriptions is None:
            given = (self._api.subscriptions, self.out, self._warehouse, self._authorization)
            self._subscriptions = ConnectionSubscriptions(*given)
        self._subscriptions.answer(message)

    def _flush(self, message: Json) -> None:
        if self._flushing is not None:
            result: dict[str, Any] = {"success": False, "error": "a flush is under way on this connection"}
            self.send(messages.flush_response(message, now_ms(), result))
            return
        self._flushing = asyncio.get_running_loop().create_task(self._flushed(message))

    async def _flushed(self, message: Json) -> None:
        try:
            result = await flush(self._api, self._warehouse, None, wait=True, timeout_s=FLUSH_WAIT_S)
        except CatalogError as error:
            result = {"success": False, "error": error.message}
        finally:
            self._flushing = None
        self.send(messages.flush_response(message, now_ms(), result))

    async def _disconnect(self) -> None:
        """Disconnect after the acks of all earlier batches."""
        while self._in_flight:
            await self._wait_for_capacity(0)
        self.close("bye", NORMAL)

    # -- back-pressure

    async def _wait_for_capacity(self, in_flight_max: int | None = None) -> None:
        most = self._api.settings.batches_in_flight_max - 1 if in_flight_max is None else in_flight_max
        while self._in_flight > most:
            self._capacity = asyncio.get_running_loop().create_future()
            await self._capacity
        await self.out.drained() if len(self.out) > QUEUE_MAX else None

    def _wake(self) -> None:
        waiting, self._capacity = self._capacity, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)


def _append(
    api: ApiContext, warehouse: str, batch: Batch, raw: bytes, message: Json, *, is_plain: bool, priority: int
) -> PendingAppend:
    """Parse the events of a batch and append them. Raises Malformed, or the error of the journal.

    A message that is not plain JSON is parsed again, so that a number such as NaN affects only its own event.
    """
    event_bytes_max = api.settings.event_bytes_max
    if len(raw) > event_bytes_max:  # otherwise no event in it can be larger
        size = messages.largest_event(message)
        if size > event_bytes_max:
            raise Malformed(
                "event_too_large",
                f"An event takes {size} bytes; at most {event_bytes_max} are allowed",
                sequence=batch.sequence,
                correlation=batch.correlation,
                size=(event_bytes_max, size),
            )
    context = RequestContext(
        format=FORMAT, source=batch.source, namespace=api.settings.default_namespace, epoch=batch.epoch
    )
    if is_plain and not (may_be_deep(raw) and not is_sound(message["events"])):
        parsed = parse_events(message["events"], context)
    else:
        parsed = parse(raw, context)
    return api.append(warehouse, api.under_rules(parsed, warehouse), priority)
