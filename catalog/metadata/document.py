"""What a table's metadata document is, and the few questions everybody asks of it.

A document is a plain dict as parsed from JSON. It is never changed in place: a change makes a new dict that
shares every untouched part with the old one.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any

Metadata = dict[str, Any]

MAIN = "main"
NO_SNAPSHOT = -1
PARTITION_FIELD_ID_START = 1000
UNSORTED_ORDER_ID = 0

snapshot_id_of = itemgetter("snapshot-id")


def current_snapshot_id(metadata: Metadata) -> int | None:
    """Null, absent and -1 all mean that there is none."""
    value: int | None = metadata.get("current-snapshot-id")
    return None if value == NO_SNAPSHOT else value


def with_id(entries: list[dict[str, Any]], key: str, id_: int | None) -> dict[str, Any] | None:
    return next((entry for entry in entries if entry.get(key) == id_), None)


def set_current_snapshot_id(document: Metadata, snapshot_id: int | None) -> None:
    """On a document that the caller owns.

    "None" is -1 in v1 and v2, as Java writes and old readers expect. From v3 on the key is left out: the spec
    makes it optional, -1 is no longer written there, and the REST description allows no null.
    """
    if snapshot_id is not None:
        document["current-snapshot-id"] = snapshot_id
    elif document["format-version"] < 3:
        document["current-snapshot-id"] = NO_SNAPSHOT
    else:
        document.pop("current-snapshot-id", None)
