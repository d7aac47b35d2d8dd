"""Several versions published as one: what lay between is in no log, because nobody could see it.

A reader who asks for a time between two snapshots of one transaction must not find the first of them, and no
log may name a metadata file that was never the table's.
"""

from __future__ import annotations

from typing import Any

from catalog.metadata.properties import previous_versions_max


def squash(
    metadata: dict[str, Any], published: dict[str, Any] | None, published_location: str | None
) -> dict[str, Any]:
    """The document with the logs of the last published version, plus one entry each for what is current."""
    before = (published or {}).get("snapshot-log") or []
    now = metadata.get("snapshot-log") or []
    kept = [entry for entry in before if entry in now]
    if now and (not kept or now[-1] != kept[-1]):
        kept = [*kept, now[-1]]
    squashed = metadata | {"snapshot-log": kept, "metadata-log": []}
    if published is not None and published_location is not None:
        entry = {"timestamp-ms": published["last-updated-ms"], "metadata-file": published_location}
        log = [*(published.get("metadata-log") or []), entry]
        squashed["metadata-log"] = log[-previous_versions_max(metadata.get("properties") or {}) :]
    return squashed


def stamped(metadata: dict[str, Any], published: dict[str, Any] | None, now_ms: int) -> dict[str, Any]:
    """The document at the moment of its publishing: all tables of a transaction change at one time.

    Without this, a reader "as of" a time between the works on two tables would see one of them done.
    """
    log = list(metadata.get("snapshot-log") or [])
    if log and log[-1] not in ((published or {}).get("snapshot-log") or []):
        log[-1] = log[-1] | {"timestamp-ms": max(now_ms, log[-1]["timestamp-ms"])}
    return metadata | {"snapshot-log": log, "last-updated-ms": max(now_ms, metadata["last-updated-ms"])}
