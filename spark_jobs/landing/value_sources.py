"""Find where the missing values of a partial row come from: another row of the batch, or a row of the mirror.
Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

Key = Hashable
Absent = Sequence[str] | None
Transaction = tuple[str, str]  # source and name
_NO_SURVIVORS: Mapping[int, Collection[Key]] = {}


@dataclass(slots=True)
class Sources:
    """`of[column][row]` is the source of the value of that column in that row: another row of the batch;
    below zero, `bases[-1 - number]`, the key of a row of the mirror; or None.

    `hidden` are deletes of rows whose key another row has taken over, each with that other row.
    """

    of: dict[str, dict[int, int | None]] = field(default_factory=dict)
    bases: list[Key] = field(default_factory=list)
    hidden: dict[int, int] = field(default_factory=dict)


def sources(  # noqa: PLR0913 - all that is known of the rows of a batch
    operations: Sequence[str],
    keys: Sequence[Key],
    roots: Sequence[Key | None],
    absent: Sequence[Absent],
    *,
    mirror: bool,
    transactions: Sequence[Transaction | None] | None = None,
    living: frozenset[Key] = frozenset(),
    lost: frozenset[int] = frozenset(),
    survivors: Mapping[int, Collection[Key]] = _NO_SURVIVORS,
) -> Sources:
    """Find the sources of the missing values.

    `roots[row]` is the key that the row had before, None if it has not changed. Without a mirror, a value
    that is not in the batch is null. `living` are the keys that the mirror has, among those that rows move
    to. `lost` are rows whose former key another row has now: what they lack is null. `survivors` are the keys
    whose rows a late truncate leaves in the mirror.
    """
    states = _RowStates(living, mirror=mirror)
    for row, operation in enumerate(operations):
        transaction = transactions[row] if transactions is not None else None
        if operation == "truncate":
            states.truncate(survivors.get(row, ()))
        elif operation == "delete":
            states.delete(row, keys[row], transaction)
        else:
            missing = absent[row]
            if missing:
                states.complete(row, keys[row], roots[row], missing, is_lost=row in lost)
            if roots[row] is not None and transaction is not None:
                states.move(row, keys[row], transaction)
            states.live[keys[row]] = row
    return states.found


class _Unseen:
    """The state of a row that no event of the batch has changed: the one in the mirror."""


_UNSEEN = _Unseen()
_State = int | _Unseen | None  # the event that last wrote the row; None if the row was deleted


class _RowStates:
    """The state of each row while the events are applied in order."""

    def __init__(self, living: frozenset[Key], *, mirror: bool) -> None:
        self.live: dict[Key, _State] = {}
        self._living = living
        self._hidden: dict[tuple[Key, Transaction], list[tuple[_State, int]]] = {}
        self._left: dict[Key, _State] = {}  # the hidden row that the previous event deleted
        self.found = Sources()
        self._deleted: dict[Key, _State] = {}
        self._base_of: dict[Key, int] = {}
        self._completed: dict[int, dict[str, int | None]] = {}
        self._unseen: _State = _UNSEEN if mirror else None
        self._survivors: Collection[Key] = ()

    def _state(self, key: Key) -> _State:
        unseen = _UNSEEN if key in self._survivors else self._unseen
        return self.live.get(key, unseen)

    def truncate(self, survivors: Collection[Key]) -> None:
        self._survivors = {key for key in survivors if isinstance(self._state(key), _Unseen)}
        self.live.clear()
        self._deleted.clear()
        self._hidden.clear()
        self._unseen = None

    def move(self, row: int, key: Key, transaction: Transaction) -> None:
        """Move a row to this key. If another row has the key, that row leaves it later in the transaction."""
        state = self._state(key)
        if state is not None and (not isinstance(state, _Unseen) or key in self._living):
            self._hidden.setdefault((key, transaction), []).append((state, row))

    def delete(self, row: int, key: Key, transaction: Transaction | None) -> None:
        hidden = self._hidden.get((key, transaction)) if transaction is not None else None
        self._left = {}
        if hidden:
            self._left[key], self.found.hidden[row] = hidden.pop(0)
            return
        state = self._state(key)
        if state is not None:  # deleted twice: keep the row that was there
            self._deleted[key] = state
        self.live[key] = None

    def complete(
        self, row: int, key: Key, root: Key | None, missing: Sequence[str], *, is_lost: bool
    ) -> None:
        origin = key if root is None else root
        state = self._state(origin)
        if is_lost:
            state = None
        elif root is not None and root in self._left:
            state = self._left[root]
        elif state is None and origin != key:
            state = self._deleted.get(origin)
        source = self._base(origin) if isinstance(state, _Unseen) else state
        known: dict[str, int | None] = self._completed.get(source, {}) if source is not None else {}
        completed = {column: known.get(column, source) for column in missing}
        self._completed[row] = completed
        for column, source in completed.items():
            self.found.of.setdefault(column, {})[row] = source

    def _base(self, key: Key) -> int:
        number = self._base_of.get(key)
        if number is None:
            self.found.bases.append(key)
            number = self._base_of[key] = -len(self.found.bases)
        return number
