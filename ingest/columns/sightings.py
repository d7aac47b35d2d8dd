"""What a batch of changes shows of its columns: their names, what is declared of them, and undeclared values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from ingest.change import Change, Declared, Row


@dataclass(slots=True)
class Sightings:
    names: list[str] = field(default_factory=list)  # in the producer's order, as they were first seen
    declared: dict[str, list[Any]] = field(default_factory=dict)  # the different types, oldest first
    undeclared: dict[str, list[Any]] = field(default_factory=dict)  # the values of changes that declare no type
    newest: Declared | None = None
    keyed_by_row_id: bool = False  # the only key column is in no row, but the rows have names


def sight(changes: Sequence[Change], key: Sequence[str]) -> Sightings:
    """Deletes count with their keys alone, for that is all that is staged of them."""
    seen = Sightings()
    declarations: dict[int, Declared] = {}
    shapes: dict[tuple[str, ...], None] = {}
    bare: list[Row] = []  # rows without a declaration
    for change in changes:
        row = _row_of(change, key)
        if row is None:
            continue
        shapes[tuple(row)] = None
        declared = change.declared
        if declared is None:
            bare.append(row)
        elif id(declared) not in declarations:
            declarations[id(declared)] = declared
    _note_declared(seen, list(declarations.values()))
    names = dict.fromkeys([*seen.declared, *(name for shape in shapes for name in shape)])
    _note_row_ids(seen, changes, key, names)
    seen.names = list(names)
    _note_undeclared(seen, bare, changes, names)
    return seen


def _row_of(change: Change, key: Sequence[str]) -> Row | None:
    if change.operation == "truncate":
        return None
    if change.operation != "delete":
        return change.after or {}
    row = change.before if change.before is not None else change.after
    return {name: row[name] for name in key if name in row} if row else {}


def _note_declared(seen: Sightings, declarations: list[Declared]) -> None:
    """Each different type of each column once. Equal declarations are common, so they are told apart first."""
    different: dict[bytes, Declared] = {}
    for declared in declarations:
        text = orjson.dumps(dict(declared.columns), default=str)
        different.setdefault(text, declared)
        seen.newest = declared
    for declared in different.values():
        for name, type_ in declared.columns.items():
            types = seen.declared.setdefault(name, [])
            if type_ not in types:
                types.append(type_)


def _note_row_ids(seen: Sightings, changes: Sequence[Change], key: Sequence[str], names: dict[str, None]) -> None:
    if len(key) == 1 and key[0] not in names and any(change.row_id is not None for change in changes):
        seen.keyed_by_row_id = True
        names[key[0]] = None


def _note_undeclared(
    seen: Sightings, bare: list[Row], changes: Sequence[Change], names: dict[str, None]
) -> None:
    for name in names:
        values = [row[name] for row in bare if name in row]
        if name not in seen.declared:
            # A declaration may leave out a column that its row has.
            values += [
                change.after[name]
                for change in changes
                if change.declared is not None and change.after and name in change.after
            ]
        if values:
            seen.undeclared[name] = values
