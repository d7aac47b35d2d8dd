"""The snapshot log: which snapshot was current from when on. Readers resolve "as of" through it.

A new snapshot is logged with its own time, a rollback with the time of the request. Snapshots that were
current only inside one request are never seen by anybody and are left out. When a snapshot is removed,
everything logged before it goes too: a gap would let a reader take the wrong snapshot for that time.
"""

from __future__ import annotations

from catalog.metadata.document import current_snapshot_id
from catalog.metadata.draft import Draft
from catalog.metadata.limits import CLOCK_SKEW_MS_MAX
from catalog.metadata.shapes import JsonObject


def log_current_snapshot(draft: Draft, id_: int) -> None:
    added = draft.snapshots_added.get(id_)
    if added is not None:
        draft.main_added.add(id_)
    log = draft.list_of("snapshot-log")
    own_ms = draft.now_ms if added is None else added["timestamp-ms"]
    last_ms = log[-1]["timestamp-ms"] if log else own_ms
    log.append({"timestamp-ms": _readable(own_ms, last_ms, draft.now_ms), "snapshot-id": id_})


def _readable(own_ms: int, last_ms: int, now_ms: int) -> int:
    """Java refuses a log that goes back by more than a minute: then the change is logged as of now."""
    earliest_ms = last_ms - CLOCK_SKEW_MS_MAX
    if own_ms >= earliest_ms:
        return own_ms
    return now_ms if now_ms >= earliest_ms else last_ms


def finish_snapshot_log(draft: Draft) -> None:
    current = current_snapshot_id(draft.document)
    unseen = draft.main_added - {current}
    if not unseen and not draft.snapshots_removed:
        return
    log: list[JsonObject] = [
        e for e in draft.document.get("snapshot-log") or () if e["snapshot-id"] not in unseen
    ]
    if draft.snapshots_removed:
        ids = draft.snapshot_ids
        gaps = [place for place, entry in enumerate(log) if entry["snapshot-id"] not in ids]
        if gaps:
            log = log[gaps[-1] + 1 :]
    draft.put_list("snapshot-log", log)
