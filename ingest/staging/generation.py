"""Order the changes of a resync, which replace the rows of a mirror. Pure.

The mirror is emptied; then come the rows that the source sent again, and the changes that arrived meanwhile.
A row that was read is ordered by its position. Without a position it is older than every change of its key:
the change arrived after the beginning of the resync, and the row may have been read before it.

A change that is not newer than what had landed at the beginning is older than every row that was read,
whenever it arrives. So it comes before the marker, and truncates at the positions of that time follow the
marker: a change that arrives later still, such as a replayed dead letter, does not undo the resync.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ingest.change import Change, TableName
from ingest.identity import ArrivedChange, after_loads, in_order
from ingest.store.resyncs import Resync

_MARKER = "calve-resync:"
SOURCES_MAX = 100  # a verification compares every key with every truncate


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
    marked = [item for item in arrived if is_marker(item.change)]
    before = after_loads([item for item in arrived if item.journal_id <= begin_id], known)
    since = [item for item in arrived if item.journal_id > begin_id and not is_marker(item.change)]
    read = [item for item in since if item.change.operation == "read"]
    others = [item for item in since if item.change.operation != "read"]
    after_loads([*read, *others], known)
    borders = _borders(before, read, known)
    old = [item for item in others if _is_old(item.change, borders)]
    new = [item for item in others if not _is_old(item.change, borders)]
    return [
        *in_order([*before, *old]),
        *marked[:1],
        *_truncates(marked, borders),
        *in_order([*read, *new]),
    ]


def _borders(
    before: Sequence[ArrivedChange], read: Sequence[ArrivedChange], known: Mapping[str, str]
) -> dict[str, str]:
    """Return the newest position of each source at the beginning of the resync. A source whose rows were read
    at an earlier one is left out: its positions have fallen.
    """
    borders = dict(known)
    for change in (item.change for item in before):
        if change.position > borders.get(change.source, ""):
            borders[change.source] = change.position
    for change in (item.change for item in read):
        if "" < change.position < borders.get(change.source, ""):
            del borders[change.source]
    return borders


def _is_old(change: Change, borders: Mapping[str, str]) -> bool:
    return "" < change.position <= borders.get(change.source, "")


def _truncates(marked: Sequence[ArrivedChange], borders: Mapping[str, str]) -> list[ArrivedChange]:
    """Return a truncate of each source at its border."""
    if not marked or len(borders) > SOURCES_MAX:
        return []
    item = marked[0]
    found = []
    for number, (source, position) in enumerate(sorted(borders.items()), 1):
        identity = f"{item.change.identity}/{source}"
        change = replace(item.change, source=source, position=position, identity=identity)
        found.append(ArrivedChange(item.journal_id, item.ordinal + number, change))
    return found
