"""How the door stands: the facts behind GET /status and the WebSocket's status message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ingest.door.room import Room, now_ms

LEVEL_NAMES = ("normal", "elevated", "high", "critical")


class _Pending(Protocol):
    @property
    def oldest_ms(self) -> int: ...

    @property
    def events(self) -> int: ...

    @property
    def stored_bytes(self) -> int: ...


def load_level(level: float, borders: Sequence[float]) -> str:
    """The word for how full the journal is."""
    return LEVEL_NAMES[sum(level >= border for border in borders)]


def brief(room: Room) -> dict[str, Any]:
    """What a status message says."""
    fill = room.intake.look()
    return {
        "state": _state(room, fill.pending_events),
        "buffer": {
            "batchCount": 0,
            "eventCount": fill.pending_events,
            "totalSizeBytes": fill.pending_bytes,
            "utilization": round(fill.level, 4),
        },
        "connectedSources": room.connections.sources,
        "loadLevel": load_level(fill.level, room.settings.load_levels),
    }


def whole(room: Room, warehouse: str) -> dict[str, Any]:
    """All of /status. Asks the journal and the landing side."""
    answer = brief(room)
    pending = room.journal.pending(warehouse)
    landing = room.landing.status(warehouse)
    stalled = landing.get("stalled")
    answer["buffer"] |= _times(pending)
    if stalled:
        answer["state"] = "recovering"
    settings = room.settings
    return answer | {
        "warehouse": warehouse,
        "time": now_ms(),
        "head": room.journal.head(warehouse),
        "lastFlushTime": landing.get("last-publish-ms"),
        "nextFlushTime": landing.get("next-cut-ms"),
        "degradedMode": bool(stalled),
        "circuitBreakerState": room.circuit,
        "connections": {
            "open": room.connections.open,
            "peak": room.connections.peak,
            "max": settings.connections_max,
        },
        "sourceStates": room.sources.of(warehouse),
        "rateLimits": {
            "connectionsPerSecond": settings.connections_per_s,
            "messagesPerSecond": settings.messages_per_s,
            "burstCapacity": settings.messages_burst,
            "maxPayloadSize": settings.message_bytes_max,
            "maxEventSize": settings.event_bytes_max,
        },
        "landing": landing,
    }


def _times(pending: Sequence[_Pending]) -> dict[str, Any]:
    oldest = min((row.oldest_ms for row in pending), default=None)
    return {"batchCount": len(pending), "oldestBatchTime": oldest}


def _state(room: Room, pending_events: int) -> str:
    if room.circuit == "open":
        return "error"
    return "receiving" if pending_events else "idle"
