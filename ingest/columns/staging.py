"""Changes -> the Arrow table that a worker reads: the row columns, typed, then the reserved columns.

    _calve_seq               order inside the batch: 0..n-1, oldest first
    _calve_operation         insert, update, delete, truncate, read
    _calve_source_timestamp  when it happened at the source
    _calve_source, _calve_position, _calve_transaction, _calve_event_id
    _calve_before            JSON of the row as it was
    _calve_absent            columns that keep their old value; null = none
    _calve_root_<key>        the key of the row from which missing values come; only if there are roots

A change that cannot be staged is left out, with its reason: a key that is null, a value that does not fit,
null for a column that must not be. Deletes carry their key alone, a truncate carries nothing. Every value is
converted as its own change declares it, so a change never depends on which others share its batch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa

from ingest.change import Change, Operation, Row
from ingest.columns.arrays import column_array
from ingest.columns.declared import distinct, encoding_of
from ingest.columns.facts import before, facts
from ingest.columns.plans import Column, Plan
from ingest.columns.schemas import ROW_ID, STAGING_PREFIX
from ingest.columns.transposing import columns_of

Roots = Mapping[int, Mapping[str, Any]]
Rejects = dict[int, str]

_EMPTY: Row = {}
_NO_ROOTS: Roots = {}
_WITH_ROW: frozenset[Operation] = frozenset({"insert", "update", "read"})


def arrow_table(
    changes: Sequence[Change],
    plan: Plan,
    key: Sequence[str],
    *,
    fallback_ids: Sequence[str] = (),
    partial_inserts: Collection[int] = (),
    roots: Roots = _NO_ROOTS,
) -> tuple[pa.Table, Rejects]:
    """The table, and the reason of each change, by its row number, that is not in it.

    The changes are in order. `fallback_ids[row]` names an event that has neither identity nor number. Of the
    inserts in `partial_inserts`, a missing column counts as absent (a key that moved), not as null.
    """
    rejects: Rejects = {}
    staging = _Staging(changes, plan, key)
    columns = columns_of(staging.rows, [column.name for column in plan.columns])
    arrays = {
        column.name: staging.column(column, values, rejects)
        for column, values in zip(plan.columns, columns, strict=True)
    }
    staging.check_keys(arrays, rejects)
    arrays |= {
        f"{STAGING_PREFIX}{name}": array
        for name, array in {
            **facts(changes, fallback_ids),
            "before": before(changes, rejects),
            "absent": staging.absent(arrays, partial_inserts),
            **(staging.roots(roots, rejects) if roots else {}),
        }.items()
    }
    table = pa.table(list(arrays.values()), names=list(arrays))
    if rejects:
        table = table.take(pa.array([row for row in range(len(changes)) if row not in rejects], pa.int64()))
    sequence = pa.arange(0, len(table))
    return table.add_column(len(plan.columns), f"{STAGING_PREFIX}seq", sequence), rejects


class _Staging:
    """The changes as rows, and what each of them declares."""

    def __init__(self, changes: Sequence[Change], plan: Plan, key: Sequence[str]) -> None:
        self.changes = changes
        self.plan = plan
        self.key = list(key)
        self.rows = [(c.after or _EMPTY) if c.operation in _WITH_ROW else _EMPTY for c in changes]
        self.declarations, self.declaration_of = distinct(changes)

    def column(self, column: Column, values: list[Any], rejects: Rejects) -> pa.Array:
        name = column.name
        if name in self.key:
            values = self._key_values(name, values)
        array, unfit = self._typed(column, values)
        for row, reason in unfit.items():
            rejects.setdefault(row, reason)
        if column.required and name not in self.key and array.null_count:
            self._check_required(column, array, rejects)
        return array

    def _typed(self, column: Column, values: list[Any]) -> tuple[pa.Array, dict[int, str]]:
        """All at once, or in groups by how the changes declare the column."""
        encodings = [encoding_of(declared, column.name) for declared in self.declarations]
        different = set(encodings) or {None}
        if len(different) == 1:
            return column_array(values, column.type, different.pop(), name=column.name)
        parts: list[pa.Array] = []
        order: list[int] = []
        unfit: dict[int, str] = {}
        for encoding in sorted(different, key=str):
            rows = [row for row, known in enumerate(self.declaration_of) if encodings[known] == encoding]
            array, reasons = column_array(
                [values[row] for row in rows], column.type, encoding, name=column.name
            )
            parts.append(array)
            order += rows
            unfit |= {rows[place]: reason for place, reason in reasons.items()}
        places = pa.array(sorted(range(len(order)), key=order.__getitem__), pa.int64())
        return pa.concat_arrays(parts).take(places), unfit

    def _key_values(self, name: str, values: list[Any]) -> list[Any]:
        from_row_id = len(self.key) == 1
        if self.key == [ROW_ID]:
            return [_named(change) for change in self.changes]
        for row in [row for row, value in enumerate(values) if value is None]:
            values[row] = _key_value(self.changes[row], name, from_row_id=from_row_id)
        return values

    def check_keys(self, arrays: Mapping[str, pa.Array], rejects: Rejects) -> None:
        """Every change but a truncate needs its whole key."""
        for name in self.key:
            array = arrays.get(name)
            if array is not None and not array.null_count:
                continue
            missing = range(len(self.changes)) if array is None else _null_rows(array)
            refused = self.plan.refused.get(name)
            reason = f'null key: column "{name}" has no value' + (f" ({refused})" if refused else "")
            for row in missing:
                if self.changes[row].operation != "truncate":
                    rejects.setdefault(row, reason)

    def _check_required(self, column: Column, array: pa.Array, rejects: Rejects) -> None:
        for row in _null_rows(array):
            change = self.changes[row]
            kept = change.operation == "update" and column.name not in self.rows[row]
            if change.operation in _WITH_ROW and not kept:
                rejects.setdefault(row, f'column "{column.name}": null, but the table requires a value')

    def absent(self, arrays: Mapping[str, pa.Array], partial_inserts: Collection[int]) -> pa.Array:
        """For updates and partial inserts: the columns that their row does not mention."""
        found: list[list[str] | None] = [None] * len(self.rows)
        names = self._perhaps_absent(arrays)
        if names:
            places = self._keeping(partial_inserts)
            rows = [self.rows[place] for place in places]
            shapes = list(map(tuple, rows))
            lacking = {
                shape: [name for name in names if name not in row] or None
                for shape, row in dict(zip(shapes, rows, strict=True)).items()
            }
            for place, shape in zip(places, shapes, strict=True):
                found[place] = lacking[shape]
        return pa.array(found, pa.list_(pa.string()))

    def _perhaps_absent(self, arrays: Mapping[str, pa.Array]) -> list[str]:
        """A column that has a value wherever there is a row is absent from none; and no key column is."""
        operations = [change.operation for change in self.changes]
        nulls = len(operations) - sum(map(operations.count, _WITH_ROW))
        return [
            column.name
            for column in self.plan.columns
            if column.name not in self.key and arrays[column.name].null_count > nulls
        ]

    def _keeping(self, partial_inserts: Collection[int]) -> list[int]:
        """The changes that keep what they do not mention."""
        return [
            place
            for place, change in enumerate(self.changes)
            if change.operation == "update" or (change.operation == "insert" and place in partial_inserts)
        ]

    def roots(self, roots: Roots, rejects: Rejects) -> dict[str, pa.Array]:
        """The columns `root_<key>`, typed like the key."""
        found: dict[str, pa.Array] = {}
        for column in self.plan.columns:
            if column.name not in self.key:
                continue
            values = [roots.get(row, _EMPTY).get(column.name) for row in range(len(self.changes))]
            array, unfit = self._typed(column, values)
            found[f"root_{column.name}"] = array
            for row, reason in unfit.items():
                rejects.setdefault(row, f"the key that it comes from: {reason}")
        return found


def _named(change: Change) -> Any:
    if change.row_id is not None and change.operation != "truncate":
        return change.row_id
    return _key_value(change, ROW_ID, from_row_id=False)


def _key_value(change: Change, name: str, *, from_row_id: bool) -> Any:
    """A key value that the row itself does not have: what is certain of `before` is the key."""
    if change.operation == "truncate":
        return None
    rows = (change.before, change.after) if change.operation == "delete" else (change.after, change.before)
    for row in rows:
        if row is not None and name in row:
            return row[name]
    return change.row_id if from_row_id else None


def _null_rows(array: pa.Array) -> list[int]:
    return [row for row, null in enumerate(array.is_null().to_pylist()) if null]
