"""What a batch of changes shows of its columns: names, declared types, and the values of undeclared ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from operator import contains
from typing import Any

from ingest.change import Change, Declared, Row
from ingest.columns.declared import distinct

_EMPTY: Row = {}
_FIRST_ROWS = 100


@dataclass(slots=True)
class Sightings:
    changes: Sequence[Change]
    names: dict[str, None] = field(default_factory=dict)  # in the producer's order, as they were first seen
    declared: dict[str, list[Any]] = field(default_factory=dict)  # the different types, oldest first
    newest: Declared | None = None
    keyed_by_row_id: bool = False  # the only key column is in no row, but the rows have names
    bare: list[Row] = field(default_factory=list)  # rows without a declaration

    def undeclared(self, name: str) -> list[Any]:
        """The column's values in changes that declare no type for it.

        They are looked up when they are asked for, because most columns have their type already.
        """
        if name not in self.names:
            return []
        values = [row[name] for row in self.bare if name in row]
        if self.newest is not None and name not in self.declared:
            # A declaration may leave out a column that its row has.
            values += [
                change.after[name]
                for change in self.changes
                if change.declared is not None and change.after and name in change.after
            ]
        return values


def sight(changes: Sequence[Change], key: Sequence[str], row_id_key: str) -> Sightings:
    """Deletes count with their keys alone, for that is all that is staged of them.

    `row_id_key` is the key column that always holds the name of the row.
    """
    seen = Sightings(changes)
    staged = [change for change in changes if change.operation != "truncate"]
    rows = _rows(staged, key)
    declarations = distinct(changes)[0]
    _note_declared(seen, [declared for declared in declarations if declared is not None])
    if declarations == [None]:
        seen.bare = rows
    elif None in declarations:
        seen.bare = [row for change, row in zip(staged, rows, strict=True) if change.declared is None]
    names = dict.fromkeys(seen.declared) | _names(rows)
    if list(key) == [row_id_key] or _is_keyed_by_row_id(changes, key, names):
        seen.keyed_by_row_id = True
        names[key[0]] = None
    seen.names = names
    return seen


def _rows(changes: Sequence[Change], key: Sequence[str]) -> list[Row]:
    """What is staged of each change."""
    rows = [
        _key_alone(change, key) if change.operation == "delete" else change.after or _EMPTY
        for change in changes
    ]
    if all(all(map(contains, rows, repeat(name))) for name in key):
        return rows
    return [
        row if change.operation == "delete" else _with_key(change, row, key)
        for change, row in zip(changes, rows, strict=True)
    ]


def _names(rows: Sequence[Row]) -> dict[str, None]:
    """The columns as they were first seen. Mostly the first rows have all, and a set tells that sooner."""
    first = dict.fromkeys(chain.from_iterable(rows[:_FIRST_ROWS]))
    if first.keys() >= set().union(*rows):
        return first
    return dict.fromkeys(chain.from_iterable(rows))


def _key_alone(change: Change, key: Sequence[str]) -> Row:
    row = change.before if change.before is not None else change.after
    return {name: row[name] for name in key if name in row} if row else {}


def _with_key(change: Change, row: Row, key: Sequence[str]) -> Row:
    """A partial row: of `before`, the key is certain."""
    before = change.before
    if before and any(name not in row for name in key):
        return row | {name: before[name] for name in key if name not in row and name in before}
    return row


def _note_declared(seen: Sightings, declarations: list[Declared]) -> None:
    for declared in declarations:
        seen.newest = declared
        for name, type_ in declared.columns.items():
            if type_ == "unknown":
                continue  # as good as not declared
            types = seen.declared.setdefault(name, [])
            if type_ not in types:
                types.append(type_)


def _is_keyed_by_row_id(changes: Sequence[Change], key: Sequence[str], names: dict[str, None]) -> bool:
    return len(key) == 1 and key[0] not in names and any(change.row_id is not None for change in changes)
