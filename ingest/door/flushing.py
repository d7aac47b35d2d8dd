"""Cut now, and say what became visible: POST /flush and the WebSocket's flush_request."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

from ingest.change import TableName
from ingest.door.answers import shown, snapshots_answer
from ingest.door.room import Room


async def flush(
    room: Room, warehouse: str, tables: Collection[TableName] | None, *, wait: bool, timeout_s: float
) -> dict[str, Any]:
    """The result of a flush. What is counted is what was pending when it was asked for."""
    begun_s = time.monotonic()
    pending = await room.ask(
        lambda: [row for row in room.journal.pending(warehouse) if tables is None or row.table in tables]
    )
    await room.ask(lambda: room.landing.flush(warehouse, tables))
    until = {row.table: row.last_id for row in pending}
    is_visible = wait and await room.arrivals.wait(warehouse, until, timeout_s)
    landed = await room.ask(lambda: room.landing.rows(warehouse, set(until))) if is_visible else {}
    snapshots = snapshots_answer(landed)
    answer: dict[str, Any] = {
        "success": is_visible or not wait,
        "committed": is_visible,
        "batchesFlushed": len({snapshot["number"] for snapshot in snapshots}),
        "eventsFlushed": sum(row.events for row in pending) if is_visible else 0,
        "bytesWritten": sum(row.stored_bytes for row in pending) if is_visible else 0,
        "paths": [shown(table) for table in sorted(landed)],
        "snapshots": snapshots,
        "durationMs": int((time.monotonic() - begun_s) * 1000),
        "usedFallback": False,
    }
    if wait and not is_visible:
        answer["error"] = f"Not all of it became visible within {timeout_s:g} s; it is safe, and will be"
    return answer
