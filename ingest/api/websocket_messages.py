"""Parse the messages of WebSocket clients, and build those of the server. Pure.

Every message is a JSON object with `type` and `timestamp`, as text or as UTF-8 bytes; a `correlationId` is
echoed. A plain `ping` is answered with a plain `pong`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from catalog.errors import (
    CatalogError,
    CommitStateUnknown,
    Conflict,
    Forbidden,
    Invalid,
    NotAuthorized,
    NotFound,
    TooLarge,
)
from ingest.api.results import AppendResult
from ingest.api.websocket_limits import MessageLimit, Rate
from ingest.change import original_of
from ingest.formats.json_body import NotJson, decode, decode_leniently
from ingest.journal.receipts import JournalFull
from ingest.settings import ApiSettings

AckStatus = Literal["ok", "buffered", "persisted", "duplicate", "fallback"]
NackReason = Literal[
    "buffer_full",
    "rate_limited",
    "invalid_sequence",
    "invalid_format",
    "internal_error",
    "shutting_down",
    "payload_too_large",
    "event_too_large",
    "load_shedding",
    "connection_limit",
    "ip_limit",
]
RETRYABLE = frozenset({"buffer_full", "rate_limited", "internal_error", "shutting_down", "load_shedding"})
SUBSCRIBE_KINDS = frozenset({"subscribe", "unsubscribe"})
KINDS = frozenset({"connect", "cdc_batch", "heartbeat", "flush_request", "disconnect"}) | SUBSCRIBE_KINDS
FLUSH_REASONS = frozenset({"manual", "shutdown", "buffer_full", "time_threshold"})
TEXT_CHARS_MAX = 255
# The caller has lost its rights, so the connection is closed.
LOST_RIGHTS = (NotAuthorized, Forbidden, NotFound)
RETRY_MS = 1_000

Json = dict[str, Any]


class Malformed(Exception):
    """A message that cannot be used, with the content of its nack."""

    def __init__(
        self,
        reason: NackReason,
        message: str,
        *,
        sequence: int = 0,
        correlation: str | None = None,
        size: tuple[int, int] | None = None,
    ) -> None:
        """`size`: the largest allowed size and the actual size, if a size limit was exceeded."""
        super().__init__(message)
        self.reason, self.message, self.sequence = reason, message, sequence
        self.correlation, self.size = correlation, size


@dataclass(frozen=True, slots=True)
class Batch:
    """A `cdc_batch`, without its events."""

    source: str
    sequence: int
    correlation: str | None
    epoch: str | None = None  # the name of the source's epoch


def parse(raw: bytes) -> tuple[Json, bool]:
    """Return the object of a message with a known `type`, and whether it is plain JSON."""
    if not raw:
        raise Malformed("invalid_format", "The message is empty")
    message, is_plain = _decoded(raw)
    if not isinstance(message, dict):
        raise Malformed("invalid_format", "The message must be a JSON object")
    kind = message.get("type")
    if not isinstance(kind, str) or kind not in KINDS:
        raise refusal(message, "invalid_format", f"type must be one of {', '.join(sorted(KINDS))}")
    return message, is_plain


def _decoded(raw: bytes) -> tuple[Any, bool]:
    """Parse a message leniently if it is not plain JSON, so that one number such as NaN does not reject a
    whole batch.
    """
    try:
        return decode(raw), True
    except NotJson as error:
        try:
            return decode_leniently(raw), False
        except NotJson:
            raise Malformed("invalid_format", f"The message is not JSON: {error}") from None


def batch_of(message: Json, client: str | None = None, shard: str | None = None) -> Batch:
    """Return the head of a batch. Malformed says what is missing. `client` and `shard` are those of the
    connection.
    """
    source = source_of(message, client, shard)
    events = message.get("events")
    if not isinstance(events, list) or not events:
        raise refusal(message, "invalid_format", "events must be a list with at least one event")
    number = message.get("sequenceNumber")
    if not _is_count(number):
        raise refusal(message, "invalid_format", "sequenceNumber must be a whole number")
    _check_borders(message, events)
    epoch = message.get("epoch")
    if epoch is not None and not _is_name(epoch):
        raise refusal(message, "invalid_format", "epoch must be a string")
    return Batch(source, int(message["sequenceNumber"]), correlation_of(message), epoch)


def source_of(message: Json, client: str | None = None, shard: str | None = None) -> str:
    """Return the name under which the events of a connection are counted."""
    source, name = message.get("sourceDoId", client), message.get("sourceShardName") or shard
    if not _is_name(source):
        raise refusal(message, "invalid_format", "sourceDoId must be a string")
    if name is None:
        return str(source)
    if not _is_name(name):
        raise refusal(message, "invalid_format", "sourceShardName must be a string")
    return f"{source}/{name}"


def largest_event(message: Json) -> int:
    """Return the size of the largest event in bytes, as JSON."""
    return max(len(original_of(event)) for event in message["events"])


def correlation_of(message: Json) -> str | None:
    found = message.get("correlationId")
    return found if isinstance(found, str) else None


def refusal(message: Json, reason: NackReason, text: str) -> Malformed:
    number = message.get("sequenceNumber")
    sequence = int(number) if isinstance(number, int) and _is_count(number) else 0
    return Malformed(reason, text, sequence=sequence, correlation=correlation_of(message))


# -- from the server


def ack(batch: Batch, status: AckStatus, *, now_ms: int, batch_id: str, details: Json, rate: Rate) -> Json:
    return _message(
        "ack",
        now_ms,
        batch.correlation,
        sequenceNumber=batch.sequence,
        status=status,
        batchId=batch_id,
        details=details,
        rateLimit=rate.as_json(),
    )


def nack(
    reason: NackReason,
    text: str,
    *,
    now_ms: int,
    sequence: int = 0,
    correlation: str | None = None,
    retry_ms: int | None = None,
    size: tuple[int, int] | None = None,
    rate: Rate | None = None,
) -> Json:
    """`size`: the largest allowed size and the actual size."""
    message = _message(
        "nack",
        now_ms,
        correlation,
        sequenceNumber=sequence,
        reason=reason,
        errorMessage=text,
        shouldRetry=reason in RETRYABLE,
    )
    if retry_ms is not None:
        message["retryDelayMs"] = retry_ms
    if size is not None:
        message["maxSize"], message["actualSize"] = size
    if rate is not None:
        message["rateLimit"] = rate.as_json()
    return message


def pong(message: Json, now_ms: int) -> Json:
    return _message("pong", message.get("timestamp"), correlation_of(message), serverTime=now_ms)


def status(message: Json, now_ms: int, facts: Mapping[str, Any]) -> Json:
    return _message("status", now_ms, correlation_of(message), **facts)


def flush_response(message: Json, now_ms: int, result: Mapping[str, Any]) -> Json:
    return _message("flush_response", now_ms, correlation_of(message), result=dict(result))


def batch_ack(
    batch: Batch,
    result: AppendResult,
    *,
    level: float,
    circuit: str,
    limit: MessageLimit,
    settings: ApiSettings,
) -> Json:
    """`level`: how full the journal is."""
    details = {
        "eventsProcessed": result.summary.events,
        "eventsAccepted": result.accepted,
        "duplicates": len(result.receipt.duplicates),
        "deadLettered": result.dead_lettered,
        "bufferUtilization": round(level, 4),
        "timeUntilFlush": settings.freshness_target_ms,
        "remainingTokens": int(limit.burst),
        "bucketCapacity": settings.messages_burst,
        "suggestedDelayMs": int(level * 1000) if level > settings.buffered_level else 0,
        "circuitBreakerState": circuit,
    }
    now_s = time.time()
    return ack(
        batch,
        ack_status(result, level, settings),
        now_ms=int(now_s * 1000),
        batch_id=result.token,
        details=details,
        rate=limit.rate(time.monotonic(), now_s),
    )


def ack_status(result: AppendResult, level: float, settings: ApiSettings) -> AckStatus:
    if result.is_duplicate:
        return "duplicate"
    if level > 1:
        return "fallback"  # beyond its usual size the journal accepts only the most important batches
    return "buffered" if level > settings.buffered_level else "ok"


def nack_reason(error: CatalogError, priority: int, settings: ApiSettings) -> tuple[NackReason, int | None]:
    """Return why a batch was not stored, and after how many milliseconds to send it again.

    A batch that may have been stored is sent again too: it is stored once.
    """
    if isinstance(error, JournalFull):
        is_full = error.level >= settings.load_levels[-1] or priority == 0
        return "buffer_full" if is_full else "load_shedding", settings.buffer_full_delay_ms
    if isinstance(error, TooLarge):
        return "payload_too_large", None
    if isinstance(error, Invalid):
        return "invalid_format", None
    if isinstance(error, Conflict):
        return "invalid_sequence", None
    if isinstance(error, CommitStateUnknown):
        return "internal_error", 0
    return "internal_error", None if isinstance(error, LOST_RIGHTS) else RETRY_MS


def _message(kind: str, timestamp: Any, correlation: str | None, **fields: Any) -> Json:
    message = {"type": kind, "timestamp": timestamp, **fields}
    if correlation is not None:
        message["correlationId"] = correlation
    return message


def _check_borders(message: Json, events: list[Any]) -> None:
    """Check that the sequence numbers at the ends of a batch agree with its events."""
    numbers = [
        event["sequence"] for event in events if isinstance(event, dict) and _is_count(event.get("sequence"))
    ]
    for name, wanted in (("firstEventSequence", min), ("lastEventSequence", max)):
        announced = message.get(name)
        if announced is None:
            continue
        if not _is_count(announced):
            raise refusal(message, "invalid_format", f"{name} must be a whole number")
        if numbers and announced != wanted(numbers):
            text = f"{name} is {announced}, but the events say {wanted(numbers)}"
            raise refusal(message, "invalid_sequence", text)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= TEXT_CHARS_MAX and value.isprintable()
