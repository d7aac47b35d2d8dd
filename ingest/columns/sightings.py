"""What a batch of changes shows of its columns: names, declared types, and the values of undeclared ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ingest.change import Change, Declared, Row
from ingest.columns.declared import distinct


@dataclass(slots=True)
class Sightings:
    names: list[str] = field(default_factory=list)  # in the producer's order, as they were first seen
    declared: dict[str, list[Any]] = field(default_factory=dict)  # the different types, oldest first
    undeclared: dict[str, list[Any]] = field(
        default_factory=dict
    )  # the values of changes that declare no type
    newest: Declared | None = None
    keyed_by_row_id: bool = False  # the only key column is in no row, but the rows have names


def sight(changes: Sequence[Change], key: Sequence[str], row_id_key: str) -> Sightings:
    """Deletes count with their keys alone, for that is all that is staged of them.

    `row_id_key` is the key column that always holds the name of the row.
    """
    seen = Sightings()
    shapes: dict[tuple[str, ...], None] = {}
    bare: list[Row] = []  # rows without a declaration
    for change in changes:
        row = _row_of(change, key)
        if row is None:
            continue
        shapes[tuple(row)] = None
        if change.declared is None:
            bare.append(row)
    _note_declared(seen, [declared for declared in distinct(changes)[0] if declared is not None])
    names = dict.fromkeys([*seen.declared, *(name for shape in shapes for name in shape)])
    if list(key) == [row_id_key] or _is_keyed_by_row_id(changes, key, names):
        seen.keyed_by_row_id = True
        names[key[0]] = None
    seen.names = list(names)
    _note_undeclared(seen, bare, changes, names)
    return seen


def _row_of(change: Change, key: Sequence[str]) -> Row | None:
    if change.operation == "truncate":
        return None
    if change.operation == "delete":
        row = change.before if change.before is not None else change.after
        return {name: row[name] for name in key if name in row} if row else {}
    row, before = change.after or {}, change.before
    if before and any(name not in row for name in key):
        # A partial row: of `before`, the key is certain.
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


def _note_undeclared(
    seen: Sightings, bare: list[Row], changes: Sequence[Change], names: dict[str, None]
) -> None:
    for name in names:
        values = [row[name] for row in bare if name in row]
        if seen.newest is not None and name not in seen.declared:
            # A declaration may leave out a column that its row has.
            values += [
                change.after[name]
                for change in changes
                if change.declared is not None and change.after and name in change.after
            ]
        if values:
            seen.undeclared[name] = values
