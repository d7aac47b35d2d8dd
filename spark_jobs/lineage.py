"""Which row a missing value comes from. Pure: plain lists in, row numbers out.

A column that an event leaves out keeps its old value. That value stands in an earlier event of the same row
in this batch, or in the mirror; after a key change it stands in the row that was deleted just before, over
any number of key changes. A deleted row leaves nothing behind for a new row of its key, a truncate nothing
at all.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

Key = Hashable
Absent = Sequence[str] | None


@dataclass(slots=True)
class Sources:
    """`of[column][row]` says where the value of that column in that row stands: another row of the batch, or,
    below zero, `bases[-1 - number]` (the key of a row of the mirror), or nowhere.
    """

    of: dict[str, dict[int, int | None]] = field(default_factory=dict)
    bases: list[Key] = field(default_factory=list)


def sources(
    operations: Sequence[str],
    keys: Sequence[Key],
    roots: Sequence[Key | None],
    absent: Sequence[Absent],
    *,
    mirror: bool,
) -> Sources:
    """`roots[row]` is the key that the row had before, None where it had its own. Without a mirror, what the
    batch does not know is null.
    """
    walk = _Walk(mirror=mirror)
    for row, operation in enumerate(operations):
        if operation == "truncate":
            walk.empty()
        elif operation == "delete":
            walk.bury(keys[row])
        else:
            missing = absent[row]
            if missing:
                walk.complete(row, keys[row], roots[row], missing)
            walk.live[keys[row]] = row
    return walk.found


class _Unseen:
    """The state of a row that no event of the batch has touched: what the mirror has."""


_UNSEEN = _Unseen()
_State = int | _Unseen | None  # the event that wrote the row last; None: the row is gone


class _Walk:
    """The rows as they stand while the events go by."""

    def __init__(self, *, mirror: bool) -> None:
        self.live: dict[Key, _State] = {}
        self.found = Sources()
        self._buried: dict[Key, _State] = {}
        self._base_of: dict[Key, int] = {}
        self._completed: dict[int, dict[str, int | None]] = {}
        self._unseen: _State = _UNSEEN if mirror else None

    def empty(self) -> None:
        self.live.clear()
        self._buried.clear()
        self._unseen = None

    def bury(self, key: Key) -> None:
        state = self.live.get(key, self._unseen)
        if state is not None:  # deleted twice: the row that was there is the one to remember
            self._buried[key] = state
        self.live[key] = None

    def complete(self, row: int, key: Key, root: Key | None, missing: Sequence[str]) -> None:
        origin = key if root is None else root
        state = self.live.get(origin, self._unseen)
        if state is None and origin != key:
            state = self._buried.get(origin)
        source = self._base(origin) if isinstance(state, _Unseen) else state
        known: dict[str, int | None] = self._completed.get(source, {}) if source is not None else {}
        completed = {column: known.get(column, source) for column in missing}
        self._completed[row] = completed
        for column, place in completed.items():
            self.found.of.setdefault(column, {})[row] = place

    def _base(self, key: Key) -> int:
        number = self._base_of.get(key)
        if number is None:
            self.found.bases.append(key)
            number = self._base_of[key] = -len(self.found.bases)
        return number
