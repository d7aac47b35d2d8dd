"""A mirror that others rolled back, emptied or dropped: why nothing lands in it until its owner has chosen.

Staging checks it before it makes files, and the server again before it gives a worker the state of a table:
the mirror may have changed in between. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ingest.store.tables import CHANGES_SUFFIX, LandedTable

_REMEDY = (
    "its changes wait. `calve table rebuild {table}` brings its rows back and lands them; "
    "`calve table settings {table} mirror-changed=accept` lands them in the mirror as it is"
)


def why_paused(
    landed: LandedTable, mirror: Mapping[str, Any] | None, changes: Mapping[str, Any] | None
) -> str | None:
    """Return why nothing may land in a mirror: it is not the one that the last batch left. None if it is.

    `mirror` and `changes` are the metadata of the two tables. Later snapshots of other writers are allowed,
    such as compaction. An expired snapshot cannot be found.
    """
    if landed.rebuild is not None:
        return f"the mirror is going to be rebuilt: {landed.rebuild}"
    known, settings = landed.mirror_snapshot_id, landed.settings
    if known is None or settings.mirror_changed == "accept" or settings.mode == "changes":
        return None
    remedy = _REMEDY.format(table=".".join(landed.table))
    if mirror is None:
        # If its changes table is missing too, the table begins anew.
        begin = f"; or drop {landed.table[-1]}{CHANGES_SUFFIX} too, and it begins anew"
        return None if changes is None else f"the mirror was dropped: {remedy}{begin}"
    current = mirror.get("current-snapshot-id")
    if current in (None, -1):
        return f"the mirror was emptied or made anew: {remedy}"
    parents = {
        snapshot["snapshot-id"]: snapshot.get("parent-snapshot-id")
        for snapshot in mirror.get("snapshots") or ()
    }
    if known not in parents:
        return None
    while current is not None and current != known:
        current = parents.get(current)
    return None if current == known else f"the mirror was rolled back: {remedy}"
