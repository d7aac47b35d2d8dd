"""GET /status, and the status message of the WebSocket protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from fastapi import APIRouter

from ingest.api.context import ApiContext, ContextOf, now_ms
from ingest.api.dependencies import Readable
from ingest.api.results import ERRORS

router = APIRouter(tags=["Changes"])

LOAD_LEVELS = ("normal", "elevated", "high", "critical")


class _Pending(Protocol):
    @property
    def oldest_ms(self) -> int: ...


@router.get("/status", operation_id="ingestStatus", response_model=dict[str, Any], responses=ERRORS)
async def status(api: ContextOf, warehouse: Readable) -> Any:
    """Return how full the journal is, the open connections, and how far each table and source has landed."""
    return await api.run_query(lambda: full_status(api, warehouse))


def load_level(level: float, limits: Sequence[float]) -> str:
    """Return the word for how full the journal is."""
    return LOAD_LEVELS[sum(level >= limit for limit in limits)]


def short_status(api: ApiContext) -> dict[str, Any]:
    """Return the fields of a status message."""
    usage = api.buffer_usage()
    return {
        "state": _state(api, usage.pending_events),
        "buffer": {
            "batchCount": 0,
            "eventCount": usage.pending_events,
            "totalSizeBytes": usage.pending_bytes,
            "utilization": round(usage.level, 4),
        },
        "connectedSources": api.connections.sources,
        "loadLevel": load_level(usage.level, api.settings.load_levels),
    }


def full_status(api: ApiContext, warehouse: str) -> dict[str, Any]:
    """Return the body of /status. Queries the journal and the landing side."""
    body = short_status(api)
    pending = api.journal.pending(warehouse)
    landing = api.landing.status(warehouse)
    stalled = landing.get("stalled")
    body["buffer"] |= _times(pending)
    if stalled:
        body["state"] = "recovering"
    settings = api.settings
    return body | {
        "warehouse": warehouse,
        "time": now_ms(),
        "head": api.journal.head(warehouse),
        "lastFlushTime": landing.get("last-publish-ms"),
        "nextFlushTime": landing.get("next-cut-ms"),
        "degradedMode": bool(stalled),
        "circuitBreakerState": api.circuit,
        "connections": {
            "open": api.connections.open,
            "peak": api.connections.peak,
            "max": settings.connections_max,
        },
        "sourceStates": api.sources.of(warehouse),
        "rateLimits": {
            "connectionsPerSecond": settings.connections_per_s,
            "messagesPerSecond": settings.messages_per_s,
            "burstCapacity": settings.messages_burst,
            "maxPayloadSize": settings.message_bytes_max,
            "maxEventSize": settings.event_bytes_max,
        },
        "landing": landing,
        "heldSources": {
            name: {"reason": state.held, "since": state.held_ms, "epoch": state.epoch}
            for name, state, _ in api.journal.sources(warehouse)
            if state.held is not None
        },
    }


def _times(pending: Sequence[_Pending]) -> dict[str, Any]:
    oldest = min((row.oldest_ms for row in pending), default=None)
    return {"batchCount": len(pending), "oldestBatchTime": oldest}


def _state(api: ApiContext, pending_events: int) -> str:
    if api.circuit == "open":
        return "error"
    return "receiving" if pending_events else "idle"
