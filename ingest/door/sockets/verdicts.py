"""What a client is told about a batch: the ack after COMMIT, or the nack that fits the failure. Pure."""

from __future__ import annotations

import time

from catalog.errors import (
    CatalogError,
    CommitStateUnknown,
    Forbidden,
    Invalid,
    NotAuthorized,
    NotFound,
    TooLarge,
)
from ingest.door.answers import Outcome
from ingest.door.settings import DoorSettings
from ingest.door.sockets import messages
from ingest.door.sockets.limits import MessageLimit
from ingest.door.sockets.messages import AckStatus, Batch, Json, NackReason
from ingest.journal.errors import JournalFull

# The caller has lost the right to be here: the connection ends.
LOST_RIGHTS = (NotAuthorized, Forbidden, NotFound)
RETRY_MS = 1_000


def ack(
    batch: Batch, outcome: Outcome, *, level: float, circuit: str, limit: MessageLimit, settings: DoorSettings
) -> Json:
    """`level`: how full the journal is."""
    details = {
        "eventsProcessed": outcome.summary.events,
        "eventsAccepted": outcome.accepted,
        "duplicates": len(outcome.receipt.duplicates),
        "deadLettered": outcome.dead_lettered,
        "bufferUtilization": round(level, 4),
        "timeUntilFlush": settings.freshness_target_ms,
        "remainingTokens": int(limit.burst),
        "bucketCapacity": settings.messages_burst,
        "suggestedDelayMs": int(level * 1000) if level > settings.buffered_level else 0,
        "circuitBreakerState": circuit,
    }
    now_s = time.time()
    return messages.ack(
        batch,
        ack_status(outcome, level, settings),
        now_ms=int(now_s * 1000),
        batch_id=outcome.token,
        details=details,
        rate=limit.rate(time.monotonic(), now_s),
    )


def ack_status(outcome: Outcome, level: float, settings: DoorSettings) -> AckStatus:
    if outcome.is_duplicate:
        return "duplicate"
    if level > 1:
        return "fallback"  # beyond its usual size the journal takes only what is most important
    return "buffered" if level > settings.buffered_level else "ok"


def nack_reason(error: CatalogError, priority: int, settings: DoorSettings) -> tuple[NackReason, int | None]:
    """Why a batch was not stored, and after how many milliseconds to send it again.

    Where nobody knows whether it was stored, it is sent again too: then it is stored once.
    """
    if isinstance(error, JournalFull):
        is_full = error.level >= settings.load_levels[-1] or priority == 0
        return "buffer_full" if is_full else "load_shedding", settings.buffer_full_delay_ms
    if isinstance(error, TooLarge):
        return "payload_too_large", None
    if isinstance(error, Invalid):
        return "invalid_format", None
    if isinstance(error, CommitStateUnknown):
        return "internal_error", 0
    return "internal_error", None if isinstance(error, LOST_RIGHTS) else RETRY_MS
