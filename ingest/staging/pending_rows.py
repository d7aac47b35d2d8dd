"""Fold staged rows without the old rows of the mirror. Pure, over Arrow.

A partial change keeps the old values of the columns that it leaves out. The fold takes them from a function
that reads old rows. Here that function returns references: each column that may be left out gets a second
column, and its value is the number of the old row. The fold moves the references as it moves values, over any
number of changes and key changes. So the result has the old row of each missing value, and a query can join
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

STAGED = "_calve_"  # the prefix of the reserved columns of staged rows
REFERENCE = "\x01"  # the prefix of the names of reference columns

# Arguments: the keys and numbers of the requested rows (the number is the last column), and the requested
# columns.
Bases = Callable[[pa.Table, list[str]], pa.Table]


class CannotFold(Exception):
    """The changes cannot be folded here, so the caller waits for the publish. The message says why."""


@dataclass(frozen=True, slots=True)
class FoldedRows:
    """The last row of each key; whether it is deleted; whether all other rows of the mirror are."""

    rows: pa.Table
    is_deleted: list[bool]
    is_truncated: bool


@dataclass(frozen=True, slots=True)
class PendingRows:
    """What changes make of the rows of a table: each row replaces the old row of its key.

    `missing` has the columns with values that come from old rows: true in the rows where they do. `base_keys`
    are the keys of these old rows. Without a key, the rows are added. If `is_truncated`, no old row remains.
    """

    key: tuple[str, ...]
    rows: pa.Table
    is_deleted: pa.Array
    missing: dict[str, pa.Array]
    base_keys: pa.Table | None
    is_truncated: bool


@dataclass(slots=True)
class References:
    """Staged rows with reference columns. `bases` is the function that the fold calls for old rows."""

    staged: pa.Table
    described: dict[str, Any]
    columns: Sequence[str]  # those that may be left out
    exchanged: frozenset[tuple[object, ...]]  # keys that rows enter and leave in one source transaction
    requested: pa.Table | None = field(default=None)  # the old rows that the fold asked for

    def bases(self, wanted: pa.Table, columns: list[str]) -> pa.Table:
        numbers = wanted.column(wanted.num_columns - 1)
        name = wanted.column_names[-1]
        if not any(column.startswith(REFERENCE) for column in columns):
            self._require_not_exchanged(wanted)
            return pa.table({name: pa.array([], pa.int64())})
        self.requested = wanted
        found = {
            column: numbers
            if column.startswith(REFERENCE)
            else pa.nulls(wanted.num_rows, self.staged.schema.field(column).type)
            for column in columns
        }
        return pa.table({**found, name: numbers})

    def resolved(self, folded: FoldedRows) -> PendingRows:
        names = [reference_name(number) for number in range(len(self.columns))]
        numbers = dict(zip(self.columns, (_flat(folded.rows.column(name)) for name in names), strict=True))
        missing = {
            column: found.is_valid() for column, found in numbers.items() if found.null_count < len(found)
        }
        base_keys = None
        if missing:
            assert self.requested is not None
            base = pc.coalesce(*(numbers[column] for column in missing))
            if any(not pc.all(pc.equal(numbers[column], base)).as_py() for column in missing):
                raise CannotFold("the values of a row come from several old rows")
            base_keys = self.requested.select(list(self.described["key"])).take(base)
        return PendingRows(
            tuple(self.described["key"]),
            folded.rows.drop_columns(names),
            pa.array(folded.is_deleted, pa.bool_()),
            missing,
            base_keys,
            folded.is_truncated,
        )

    def _require_not_exchanged(self, wanted: pa.Table) -> None:
        """The fold asks whether keys exist that rows enter and others leave. That matters only inside one
        source transaction, such as a swap of two keys.
        """
        keys = zip(*(column.to_pylist() for column in wanted.columns[:-1]), strict=True)
        if self.exchanged.intersection(keys):
            raise CannotFold("rows exchange their keys in one source transaction")


def open_references(staged: pa.Table, described: Mapping[str, Any]) -> References:
    """Add the reference columns to staged rows, and to their description."""
    absent = staged.column(f"{STAGED}absent").to_pylist()
    columns = sorted({name for names in absent if names for name in names})
    number_of = {name: reference_name(number) for number, name in enumerate(columns)}
    if columns:
        index = staged.schema.get_field_index(f"{STAGED}absent")
        marked = [names and [*names, *(number_of[name] for name in names)] for names in absent]
        staged = staged.set_column(index, f"{STAGED}absent", pa.array(marked, pa.list_(pa.string())))
    for name in number_of.values():
        staged = staged.append_column(name, pa.nulls(staged.num_rows, pa.int64()))
    wider = {**described, "columns": [*described["columns"], *number_of.values()]}
    return References(staged, wider, columns, _exchanged(staged, described))


def reference_name(number: int) -> str:
    return f"{REFERENCE}{number}"


def _exchanged(staged: pa.Table, described: Mapping[str, Any]) -> frozenset[tuple[object, ...]]:
    if not described["has-moves"]:
        return frozenset()
    key: list[str] = described["key"]
    keys = list(zip(*(staged.column(name).to_pylist() for name in key), strict=True))
    operations = staged.column(f"{STAGED}operation").to_pylist()
    transactions = staged.column(f"{STAGED}transaction").to_pylist()
    has_moved = staged.column(f"{STAGED}root_{key[0]}").is_valid().to_pylist()
    facts = list(zip(keys, transactions, operations, has_moved, strict=True))
    entered = {(row, name) for row, name, _, moved in facts if moved and name is not None}
    left = {(row, name) for row, name, operation, _ in facts if operation == "delete"}
    return frozenset(row for row, _ in entered & left)


def _flat(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks()
