"""One WebSocket connection: reads messages in order, answers each, keeps within its limits.

Batches enter the journal in the order in which they came; their acks are sent as their COMMITs come through,
and several may be on their way at once. A batch whose client has gone is stored all the same.
"""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import Future
from functools import partial
from typing import Any

from catalog.errors import CatalogError
from ingest.door import sources, standing
from ingest.door.answers import Outcome
from ingest.door.asgi import Receive, Send
from ingest.door.flushing import flush
from ingest.door.intake import Taken
from ingest.door.room import Room, now_ms
from ingest.door.sockets import batches, messages, verdicts
from ingest.door.sockets.limits import MessageLimit
from ingest.door.sockets.messages import Batch, Json, Malformed
from ingest.door.sockets.speaking import NORMAL, Speaker
from ingest.door.sources import SourceState
from ingest.journal.receipts import Receipt

log = logging.getLogger(__name__)

OUTBOX_MAX = 256
FLUSH_WAIT_S = 30.0


class Connection(Speaker):
    __slots__ = (
        "_authorization",
        "_client",
        "_flushing",
        "_in_flight",
        "_priority",
        "_receive",
        "_room_for_more",
        "_shard",
        "_warehouse",
        "source",
    )

    def __init__(
        self,
        room: Room,
        receive: Receive,
        send: Send,
        *,
        warehouse: str,
        authorization: str | None,
        client: str | None,
        shard: str | None,
        priority: int,
    ) -> None:
        super().__init__(room, send)
        self._receive = receive
        self._warehouse = warehouse
        self._authorization = authorization
        self._client = client
        self._shard = shard
        self._priority = priority
        self._in_flight = 0
        self._room_for_more: asyncio.Future[None] | None = None
        self._flushing: asyncio.Task[None] | None = None
        self.source: str | None = client  # under which the connection is counted

    async def serve(self) -> None:
        """Until either side ends it."""
        while not self.closing:
            message = await self._receive()
            if message["type"] != "websocket.receive":
                break
            data = message.get("bytes")
            if data is None:
                data = message["text"].encode()
            await self._on(data)
            if self._in_flight >= self._room.settings.batches_in_flight_max or len(self.out) > OUTBOX_MAX:
                await self._has_room()
        await self.out.drained()

    # -- in

    async def _on(self, raw: bytes) -> None:
        if raw == b"ping":
            self.out.put("pong")
            return
        started_s = time.monotonic()
        try:
            self._require_size(len(raw))
            found = await self._room.take(len(raw), partial(self._read, raw, started_s), patient=True)
        except Malformed as malformed:
            self.refuse(malformed)
        except Exception:
            log.exception("a message could not be taken")
            self.nack("internal_error", "The server failed; send the message again")
        else:
            if isinstance(found, tuple):
                self._watch(*found, started_s)
            else:
                await self._answer(found)

    def _require_size(self, size: int) -> None:
        size_max = self._room.settings.message_bytes_max
        if size > size_max:
            text = f"The message has {size} bytes; at most {size_max} are allowed"
            raise Malformed("payload_too_large", text, size=(size_max, size))

    def _read(self, raw: bytes, now_s: float) -> Json | tuple[Batch, Taken | CatalogError]:
        """A message that is not a batch; or a batch, and what became of it."""
        if self._limit is None:
            self._limit = MessageLimit(self._room.settings, now_s)
        is_one_too_many = not self._limit.take(now_s)
        message, is_plain = messages.parse(raw)
        if is_one_too_many:
            raise messages.refusal(message, "rate_limited", "Too many messages in a second")
        if message["type"] != "cdc_batch":
            return message
        if self._room.is_stopping:
            raise messages.refusal(message, "shutting_down", "The server is stopping")
        batch = messages.batch_of(message, self._client, self._shard)
        self._join(batch.source, message)
        try:
            self._room.access.writer(self._authorization, self._warehouse)
            return batch, batches.take(
                self._room,
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
            if not self._room.connections.join(source):
                self.closing = True
                raise messages.refusal(message, "connection_limit", f"{source} has too many connections")
            self.source = source

    # -- a batch on its way

    def _watch(self, batch: Batch, taken: Taken | CatalogError, started_s: float) -> None:
        if isinstance(taken, CatalogError):
            self._failed(batch, taken)
            return
        room = self._room
        heard = room.sources.received(
            self._warehouse, batch.source, batch.sequence, taken.summary.events, now_ms()
        )
        self._in_flight += 1
        loop = asyncio.get_running_loop()
        settled = partial(self._settled, batch, taken, heard, started_s)

        def wake(future: Future[Receipt]) -> None:
            try:
                loop.call_soon_threadsafe(settled, future)
            except RuntimeError:  # the server has ended; what is stored is stored
                log.debug("nobody waits for a receipt any more")

        taken.future.add_done_callback(wake)

    def _settled(
        self, batch: Batch, taken: Taken, heard: SourceState, started_s: float, future: Future[Receipt]
    ) -> None:
        """COMMIT is through, or is known to have failed."""
        self._in_flight -= 1
        room = self._room
        error = future.exception()
        if isinstance(error, CatalogError):
            self._failed(batch, error)
        elif error is not None:
            log.error("a batch could not be stored", exc_info=error)
            self.nack("internal_error", "The server failed; send the batch again", batch=batch)
        else:
            room.failures = 0
            outcome = Outcome(self._warehouse, taken.summary, future.result())
            room.measures.acknowledged("ws", outcome, time.monotonic() - started_s)
            sources.acked(heard, batch.sequence, now_ms())
            self._ack(batch, outcome)
        self._wake()

    def _ack(self, batch: Batch, outcome: Outcome) -> None:
        assert self._limit is not None, "a batch has been counted"
        room = self._room
        level, circuit = room.intake.fill.level, room.circuit
        self.tell(
            verdicts.ack(
                batch, outcome, level=level, circuit=circuit, limit=self._limit, settings=room.settings
            )
        )

    def _failed(self, batch: Batch, error: CatalogError) -> None:
        self._room.note_failure(error)
        reason, retry_ms = verdicts.nack_reason(error, self._priority, self._room.settings)
        if reason == "internal_error":
            log.warning("a batch was not stored", extra={"reason": error.message})
        self.nack(reason, error.message, batch=batch, retry_ms=retry_ms)
        if isinstance(error, verdicts.LOST_RIGHTS):
            self.close("not allowed")

    # -- other messages

    async def _answer(self, message: Json) -> None:
        kind = message["type"]
        if kind == "heartbeat":
            self.tell(messages.pong(message, now_ms()))
        elif kind == "connect":
            await self._connect(message)
        elif kind == "flush_request":
            self._flush(message)
        else:
            await self._disconnect()

    async def _connect(self, message: Json) -> None:
        try:
            self._join(messages.source_of(message, self._client, self._shard), message)
        except Malformed as malformed:
            self.refuse(malformed)
            return
        try:
            facts = await self._room.ask(lambda: standing.brief(self._room))
        except CatalogError as error:
            self.nack("internal_error", error.message, correlation=messages.correlation_of(message))
            return
        self.tell(messages.status(message, now_ms(), facts))

    def _flush(self, message: Json) -> None:
        if self._flushing is not None:
            result: dict[str, Any] = {"success": False, "error": "a flush is under way on this connection"}
            self.tell(messages.flush_response(message, now_ms(), result))
            return
        self._flushing = asyncio.get_running_loop().create_task(self._flushed(message))

    async def _flushed(self, message: Json) -> None:
        try:
            result = await flush(self._room, self._warehouse, None, wait=True, timeout_s=FLUSH_WAIT_S)
        except CatalogError as error:
            result = {"success": False, "error": error.message}
        finally:
            self._flushing = None
        self.tell(messages.flush_response(message, now_ms(), result))

    async def _disconnect(self) -> None:
        """After the acks of all that was sent before."""
        while self._in_flight:
            await self._has_room(0)
        self.close("bye", NORMAL)

    # -- not too much at once

    async def _has_room(self, in_flight_max: int | None = None) -> None:
        most = self._room.settings.batches_in_flight_max - 1 if in_flight_max is None else in_flight_max
        while self._in_flight > most:
            self._room_for_more = asyncio.get_running_loop().create_future()
            await self._room_for_more
        await self.out.drained() if len(self.out) > OUTBOX_MAX else None

    def _wake(self) -> None:
        waiting, self._room_for_more = self._room_for_more, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)
