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

import orjson

from catalog.errors import (
    CatalogError,
    CommitStateUnknown,
    Forbidden,
    Invalid,
    NotAuthorized,
    NotFound,
    TooLarge,
)
from ingest.door import sources, standing
from ingest.door.answers import Outcome
from ingest.door.asgi import Receive, Send
from ingest.door.flushing import flush
from ingest.door.intake import Taken
from ingest.door.room import Room, now_ms
from ingest.door.sockets import batches, messages
from ingest.door.sockets.batches import EventTooLarge
from ingest.door.sockets.limits import MessageLimit
from ingest.door.sockets.messages import AckStatus, Batch, Json, Malformed, NackReason
from ingest.door.sockets.outbox import Outbox
from ingest.door.sources import SourceState
from ingest.journal.errors import JournalFull
from ingest.journal.receipts import Receipt

log = logging.getLogger(__name__)

POLICY_VIOLATION = 1008
NORMAL = 1000
OUTBOX_MAX = 256
FLUSH_WAIT_S = 30.0


class Connection:
    __slots__ = (
        "_authorization",
        "_client",
        "_closing",
        "_flushing",
        "_in_flight",
        "_limit",
        "_priority",
        "_receive",
        "_room",
        "_room_for_more",
        "_shard",
        "_violations",
        "_warehouse",
        "out",
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
        self._room = room
        self._receive = receive
        self._warehouse = warehouse
        self._authorization = authorization
        self._client = client
        self._shard = shard
        self._priority = priority
        self._limit: MessageLimit | None = None  # until the first message
        self._in_flight = 0
        self._room_for_more: asyncio.Future[None] | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._violations = 0
        self._closing = False
        self.out = Outbox(send)
        self.source: str | None = client  # under which the connection is counted

    async def serve(self) -> None:
        """Until either side ends it."""
        while not self._closing:
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
        size_max = self._room.settings.message_bytes_max
        if len(raw) > size_max:
            self._nack("payload_too_large", f"The message has {len(raw)} bytes", size=(size_max, len(raw)))
            self._violated()
            return
        started_s = time.monotonic()
        try:
            found = await self._room.take(len(raw), partial(self._read, raw, started_s))
        except EventTooLarge as large:
            self._refuse(large, size=large.size)
            self._violated()
            return
        except Malformed as malformed:
            self._refuse(malformed)
            return
        except Exception:
            log.exception("a message could not be taken")
            self._nack("internal_error", "The server failed; send the message again")
            return
        if isinstance(found, tuple):
            self._watch(*found, started_s)
        else:
            await self._answer(found)

    def _read(self, raw: bytes, now_s: float) -> Json | tuple[Batch, Taken | CatalogError]:
        """A message that is not a batch; or a batch, and what became of it."""
        message, is_plain = messages.parse(raw)
        limit = self._limit
        if limit is None:
            limit = self._limit = MessageLimit(self._room.settings, now_s)
        if not limit.take(now_s):
            raise messages.refusal(message, "rate_limited", "Too many messages in a second")
        if message["type"] != "cdc_batch":
            return message
        if self._room.stopping:
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
                self._closing = True
                raise messages.refusal(message, "connection_limit", f"{source} has too many connections")
            self.source = source

    # -- a batch on its way

    def _watch(self, batch: Batch, taken: Taken | CatalogError, started_s: float) -> None:
        if isinstance(taken, CatalogError):
            self._failed(batch, taken)
            return
        room = self._room
        heard = room.sources.received(
            self._warehouse, batch.source, batch.sequence, taken.parsed.events, now_ms()
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
            room.failures += 1
            self._failed(batch, error)
        elif error is not None:
            log.error("a batch could not be stored", exc_info=error)
            self._nack("internal_error", "The server failed; send the batch again", batch=batch)
        else:
            room.failures = 0
            outcome = Outcome(self._warehouse, taken.parsed, future.result())
            room.measures.acknowledged("ws", outcome, time.monotonic() - started_s)
            sources.acked(heard, batch.sequence, now_ms())
            self._ack(batch, outcome)
        self._wake()

    def _ack(self, batch: Batch, outcome: Outcome) -> None:
        assert self._limit is not None
        room, now_s = self._room, time.monotonic()
        level = room.intake.level
        details = {
            "eventsProcessed": outcome.parsed.events,
            "eventsAccepted": outcome.accepted,
            "duplicates": len(outcome.receipt.duplicates),
            "deadLettered": outcome.dead_lettered,
            "bufferUtilization": round(level, 4),
            "timeUntilFlush": room.settings.freshness_target_ms,
            "remainingTokens": int(self._limit.burst),
            "bucketCapacity": room.settings.messages_burst,
            "suggestedDelayMs": int(level * 1000) if level > room.settings.buffered_level else 0,
            "circuitBreakerState": room.circuit,
        }
        text = messages.ack(
            batch,
            self._ack_status(outcome, level),
            now_ms=now_ms(),
            batch_id=outcome.token,
            details=details,
            rate=self._limit.rate(now_s, time.time()),
        )
        self._tell(text)

    def _ack_status(self, outcome: Outcome, level: float) -> AckStatus:
        if outcome.is_duplicate:
            return "duplicate"
        if level > 1:
            return "fallback"  # beyond its usual size, the journal takes only what is most important
        return "buffered" if level > self._room.settings.buffered_level else "ok"

    def _failed(self, batch: Batch, error: CatalogError) -> None:
        """A batch that was not stored, or of which nobody knows: sent again, it is stored once."""
        delay_ms = self._room.settings.buffer_full_delay_ms
        if isinstance(error, JournalFull):
            is_full = error.level >= self._room.settings.load_levels[-1] or self._priority == 0
            reason: NackReason = "buffer_full" if is_full else "load_shedding"
            self._nack(reason, error.message, batch=batch, retry_ms=delay_ms)
        elif isinstance(error, (NotAuthorized, Forbidden, NotFound)):
            self._nack("internal_error", error.message, batch=batch)
            self._close("not allowed")
        elif isinstance(error, TooLarge):
            self._nack("payload_too_large", error.message, batch=batch)
        elif isinstance(error, Invalid):
            self._nack("invalid_format", error.message, batch=batch)
        else:
            log.warning("a batch was not stored", extra={"reason": error.message})
            retry_ms = 0 if isinstance(error, CommitStateUnknown) else 1000
            self._nack("internal_error", error.message, batch=batch, retry_ms=retry_ms)

    # -- other messages

    async def _answer(self, message: Json) -> None:
        kind = message["type"]
        if kind == "heartbeat":
            self._tell(messages.pong(message, now_ms()))
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
            self._refuse(malformed)
            return
        try:
            facts = await self._room.ask(lambda: standing.brief(self._room))
        except CatalogError as error:
            self._nack("internal_error", error.message, correlation=messages.correlation_of(message))
            return
        self._tell(messages.status(message, now_ms(), facts))

    def _flush(self, message: Json) -> None:
        if self._flushing is not None:
            result: dict[str, Any] = {"success": False, "error": "a flush is under way on this connection"}
            self._tell(messages.flush_response(message, now_ms(), result))
            return
        self._flushing = asyncio.get_running_loop().create_task(self._flushed(message))

    async def _flushed(self, message: Json) -> None:
        try:
            result = await flush(self._room, self._warehouse, None, wait=True, timeout_s=FLUSH_WAIT_S)
        except CatalogError as error:
            result = {"success": False, "error": error.message}
        finally:
            self._flushing = None
        self._tell(messages.flush_response(message, now_ms(), result))

    async def _disconnect(self) -> None:
        """After the acks of all that was sent before."""
        while self._in_flight:
            await self._has_room(0)
        self._close("bye", NORMAL)

    # -- out

    def _tell(self, message: Json) -> None:
        self.out.put(orjson.dumps(message).decode())

    def _refuse(self, malformed: Malformed, *, size: tuple[int, int] | None = None) -> None:
        is_rate = malformed.reason == "rate_limited" and self._limit is not None
        retry_ms = self._limit.wait_ms(time.monotonic()) if is_rate and self._limit is not None else None
        self._nack(
            malformed.reason,
            malformed.message,
            sequence=malformed.sequence,
            correlation=malformed.correlation,
            retry_ms=retry_ms,
            size=size,
        )
        if self._closing:
            self._close(malformed.reason)

    def _nack(
        self,
        reason: NackReason,
        text: str,
        *,
        batch: Batch | None = None,
        sequence: int = 0,
        correlation: str | None = None,
        retry_ms: int | None = None,
        size: tuple[int, int] | None = None,
    ) -> None:
        self._room.measures.nack(reason)
        limit = self._limit
        self._tell(
            messages.nack(
                reason,
                text,
                now_ms=now_ms(),
                sequence=batch.sequence if batch is not None else sequence,
                correlation=batch.correlation if batch is not None else correlation,
                retry_ms=retry_ms,
                size=size,
                rate=limit.rate(time.monotonic(), time.time()) if limit is not None else None,
            )
        )

    def _violated(self) -> None:
        self._violations += 1
        if self._violations >= self._room.settings.size_violations_max:
            self._close("too many messages or events beyond the size limit")

    def _close(self, reason: str, code: int = POLICY_VIOLATION) -> None:
        self._closing = True
        self.out.close(code, reason)

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
