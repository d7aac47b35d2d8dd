"""Order the changes of a resync, which replace the rows of a mirror. Pure.

The mirror is emptied; then come the rows that the source sent again, and the changes that arrived meanwhile.
A row that was read is ordered by its position. Without a position it is older than every change of its key:
the change arrived after the beginning of the resync, and the row may have been read before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ingest.change import Change, TableName
from ingest.identity import ArrivedChange, after_loads, in_order
from ingest.store.resyncs import Resync

_MARKER = "calve-resync:"


def marker(resync: Resync, table: TableName) -> Change:
    """Return the change that the end of a resync appends to the journal. It empties the mirror."""
    return Change(0, table, "truncate", identity=f"{_MARKER}{resync.generation}:{resync.began_ms}")


def is_marker(change: Change) -> bool:
    return change.operation == "truncate" and change.identity.startswith(_MARKER)


def mark_read(change: Change, generation: int) -> None:
    """Return the identity of a row that is read again: an earlier load may have had the same row at the same
    position.
    """
    if change.operation == "read" and change.identity:
        change.identity = f"{_MARKER}{generation}/{change.identity}"


def in_generation(
    arrived: Sequence[ArrivedChange], known: Mapping[str, str], begin_id: int
) -> list[ArrivedChange]:
    """Return the changes in order. `arrived` has the marker; `known` are the newest positions of the
    table.
    """
    before = [item for item in arrived if item.journal_id <= begin_id]
    since = [item for item in arrived if item.journal_id > begin_id and not is_marker(item.change)]
    marked = [item for item in arrived if is_marker(item.change)]
    read = [item for item in since if item.change.operation == "read"]
    others = [item for item in since if item.change.operation != "read"]
    return [
        *in_order(after_loads(before, known)),
        *marked[:1],
        *in_order(after_loads([*read, *others], known)),
    ]
