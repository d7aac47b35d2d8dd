"""What the server says on one connection, and how it ends it."""

from __future__ import annotations

import time

import orjson

from ingest.door.asgi import Send
from ingest.door.room import Room, now_ms
from ingest.door.sockets import messages
from ingest.door.sockets.limits import MessageLimit
from ingest.door.sockets.messages import Batch, Json, Malformed, NackReason
from ingest.door.sockets.outbox import Outbox

POLICY_VIOLATION = 1008
NORMAL = 1000


class Speaker:
    __slots__ = ("_limit", "_room", "_violations", "closing", "out")

    def __init__(self, room: Room, send: Send) -> None:
        self._room = room
        self._limit: MessageLimit | None = None  # until the first message
        self._violations = 0
        self.closing = False
        self.out = Outbox(send)

    def tell(self, message: Json) -> None:
        self.out.put(orjson.dumps(message).decode())

    def refuse(self, malformed: Malformed) -> None:
        """A message that cannot be taken as it is."""
        limit = self._limit
        is_rate = malformed.reason == "rate_limited"
        self.nack(
            malformed.reason,
            malformed.message,
            sequence=malformed.sequence,
            correlation=malformed.correlation,
            retry_ms=limit.wait_ms(time.monotonic()) if is_rate and limit is not None else None,
            size=malformed.size,
        )
        if malformed.size is not None:
            self._violated()
        elif self.closing:
            self.close(malformed.reason)

    def nack(
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
        self.tell(
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

    def close(self, reason: str, code: int = POLICY_VIOLATION) -> None:
        self.closing = True
        self.out.close(code, reason)

    def _violated(self) -> None:
        self._violations += 1
        if self._violations >= self._room.settings.size_violations_max:
            self.close("too many messages or events beyond the size limit")
