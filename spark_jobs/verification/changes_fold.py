"""Compute the row of a key from all of its changes in the changes table. Pure.

Verification compares the result with the mirror. The rules are those that landing applies batch by batch:

- Batches apply in the order of their commit time. Inside a batch, changes apply in the order of their file.
- A change is ignored if the key already has a change of the same source with a newer position.
- A truncate removes the row, unless the key has a change of the same source with a newer position.
- Two rows may swap their keys in one transaction. An insert of a key that already has a row, followed by a
  delete of that key in the same transaction, deletes the row that was there before the insert. A producer
  that sends an insert twice produces the same sequence, so the mirror may have either of two rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Generic, NamedTuple, TypeVar

Row = TypeVar("Row")
DELETE, INSERT, TRUNCATE = "delete", "insert", "truncate"


class Change(NamedTuple, Generic[Row]):
    operation: str
    source: str
    position: str
    transaction: str | None
    commit_us: int
    file: str  # "" if the batch recorded the order of its changes
    row_number: int  # in the file, or in the batch if it recorded the order
    row: Row


class Outcome(NamedTuple, Generic[Row]):
    """The row of a key; None if it has none. `other` is the row if no delete referred to a hidden row."""

    row: Row | None
    other: Row | None


def fold(
    changes: Sequence[Change[Row]],
    truncates: Sequence[Change[None]] = (),
    through: Mapping[str, str] | None = None,
) -> Outcome[Row]:
    """Return the row after the changes.

    `changes` are the changes of one key, sorted by commit time, file and row number. `truncates` have the
    same order. Changes after the positions in `through` are ignored.
    """
    ordered = _in_order(changes)
    events: Iterable[Change[Row] | Change[None]] = _merged(ordered, truncates) if truncates else ordered
    row = other = None
    newest: dict[str, str] = {}
    emptied: dict[str, str] = {}  # the newest truncate of each source
    hidden: str | None = None  # the transaction in which a row hides another one
    for event in events:
        source, position = event.source, event.position
        if through is not None and position and position > through.get(source, position):
            continue
        if event.operation == TRUNCATE:
            emptied[source] = max(position, emptied.get(source, ""))
            if not position:
                newest.clear()  # later changes apply, even if their positions are older
            if newest.get(source, "") <= position:
                row = other = hidden = None
            continue
        if position:
            if position < max(newest.get(source, ""), emptied.get(source, "")):
                continue
            newest[source] = position
        transaction = f"{source} {event.transaction}" if event.transaction is not None else None
        if event.operation == DELETE:
            other = None
            if transaction is None or hidden != transaction:
                row = None
            hidden = None
        else:
            is_hiding = event.operation == INSERT and row is not None and transaction is not None
            hidden = transaction if is_hiding else hidden if hidden == transaction else None
            row = other = event.row
    return Outcome(row, other)


def _in_order(changes: Sequence[Change[Row]]) -> Sequence[Change[Row]]:
    """Return the changes of each batch in the order of their positions: a compaction may have reordered a
    file.
    """
    if all(
        one.commit_us != other.commit_us or one.source != other.source or one.position <= other.position
        for one, other in pairwise(changes)
    ):
        return changes
    result = list(changes)
    slots: dict[tuple[int, str], list[int]] = {}
    for slot, change in enumerate(changes):
        if change.position:
            slots.setdefault((change.commit_us, change.source), []).append(slot)
    for own in slots.values():
        for slot, change in zip(own, sorted((changes[slot] for slot in own), key=_position), strict=True):
            result[slot] = change
    return result


def _position(change: Change[Row]) -> str:
    return change.position


def _merged(
    changes: Sequence[Change[Row]], truncates: Sequence[Change[None]]
) -> list[Change[Row] | Change[None]]:
    merged: list[Change[Row] | Change[None]] = []
    waiting = list(truncates)
    for change in changes:
        while waiting and _is_before(waiting[0], change):
            merged.append(waiting.pop(0))
        merged.append(change)
    return merged + waiting


def _is_before(truncate: Change[None], change: Change[Row]) -> bool:
    """Return whether a truncate applies before a change.

    Across the files of a batch, the positions of the source decide. Without positions, the truncate applies
    first.
    """
    if truncate.commit_us != change.commit_us:
        return truncate.commit_us < change.commit_us
    if truncate.file == change.file:
        return truncate.row_number < change.row_number
    if truncate.source == change.source and truncate.position and change.position:
        return truncate.position < change.position
    return True
