"""Convert changes to the Arrow table that a worker reads: the typed row columns, then the reserved
columns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ingest.change import Change, Operation, Row
from ingest.identity import ArrivedChange, event_id, key_changes
from ingest.types.arrays import column_array
from ingest.types.dates import LONG_END
from ingest.types.errors import ConversionError
from ingest.types.iceberg import distinct, encoding_of
from ingest.types.schema_plan import ROW_ID, STAGING_PREFIX, Column, SchemaPlan
from ingest.types.values import json_text, json_texts

ROWS_AT_A_TIME = 128
COLUMNS_AT_A_TIME = 64  # limits the memory for the values of a wide table

_Apart = Callable[[Row], tuple[Any, ...]]


def columns_of(rows: Sequence[Row], names: Sequence[str]) -> Iterator[list[Any]]:
    """Return the values of each of the columns, None where a row lacks it."""
    for first in range(0, len(names), COLUMNS_AT_A_TIME):
        yield from _some(rows, names[first : first + COLUMNS_AT_A_TIME])


def _some(rows: Sequence[Row], names: Sequence[str]) -> list[list[Any]]:
    if len(names) == 1:  # itemgetter with one name returns no tuple
        return [[row.get(names[0]) for row in rows]]
    apart: _Apart = itemgetter(*names)
    nulls: Row = dict.fromkeys(names)
    columns: list[list[Any]] = [[] for _ in names]
    for first in range(0, len(rows), ROWS_AT_A_TIME):
        some = [row or nulls for row in rows[first : first + ROWS_AT_A_TIME]]
        try:
            values = list(map(apart, some))
        except KeyError:
            values = [apart(nulls | row) for row in some]
        for column, part in zip(columns, zip(*values, strict=True), strict=True):
            column.extend(part)
    return columns


# -- metadata of changes

_TIME = pa.timestamp("us", tz="UTC")
_TIME_MS_MAX = LONG_END // 1_000 - 1


def change_metadata(changes: Sequence[Change], fallback_ids: Sequence[str]) -> dict[str, pa.Array]:
    """Return the reserved columns. `fallback_ids[row]` identifies an event that has neither identity nor
    number.
    """
    return {
        "operation": text_column([change.operation for change in changes]),
        "source_timestamp": time_column([change.time_ms for change in changes]),
        "source": text_column([change.source for change in changes]),
        "position": text_column([change.position for change in changes]),
        "transaction": text_column([change.transaction for change in changes]),
        "event_id": event_ids(changes, fallback_ids),
    }


def time_column(times_ms: list[int | None]) -> pa.Array:
    try:
        numbers = pa.array(times_ms, pa.int64())
        ends = pc.min_max(numbers).as_py()
        if (ends["min"] or 0) >= -_TIME_MS_MAX and (ends["max"] or 0) <= _TIME_MS_MAX:
            return pc.multiply(numbers, 1_000).cast(_TIME)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        pass
    return pa.array([_time_us(time_ms) for time_ms in times_ms], _TIME)


def _time_us(time_ms: int | None) -> int | None:
    """Return the time in microseconds; None if it is out of range."""
    return None if time_ms is None or abs(time_ms) > _TIME_MS_MAX else int(time_ms) * 1_000


def event_ids(changes: Sequence[Change], fallback_ids: Sequence[str]) -> pa.Array:
    identities: list[str | None] = [change.identity for change in changes]
    if all(identities):
        return text_column(identities)
    numbered = None if any(identities) else _numbered(changes)
    if numbered is not None:
        return numbered
    return text_column([_event_id(change, row, fallback_ids) for row, change in enumerate(changes)])


def _numbered(changes: Sequence[Change]) -> pa.Array | None:
    """Return `source:number` of each change, if all have numbers of one source."""
    numbers, sources = [change.number for change in changes], [change.source for change in changes]
    if set(map(type, numbers)) != {int} or sources.count(sources[0]) != len(sources):
        return None
    try:
        digits = pa.array(numbers, pa.int64()).cast(pa.string())
        return pc.binary_join_element_wise(pa.scalar(sources[0], pa.string()), digits, ":")
    except (OverflowError, UnicodeEncodeError):
        return None


def _event_id(change: Change, row: int, fallback_ids: Sequence[str]) -> str | None:
    if change.identity:
        return change.identity
    if change.number is not None:
        return f"{change.source}:{change.number}"
    return fallback_ids[row] if fallback_ids else None


def text_column(values: Sequence[str | None]) -> pa.Array:
    """Return a text column. Text that is not Unicode is escaped: it is no reason to refuse a change."""
    size = len(values)
    if size and values[0] == values[-1] and values.count(values[0]) == size:
        return pa.repeat(text_column_one_by_one(values[:1])[0], size)
    return text_column_one_by_one(values)


def text_column_one_by_one(values: Sequence[str | None]) -> pa.Array:
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:
        safe = [None if v is None else v.encode("utf-8", "backslashreplace").decode() for v in values]
        return pa.array(safe, pa.string())


def before_column(changes: Sequence[Change], rejects: dict[int, str]) -> pa.Array:
    """Return the rows before the changes as JSON. A row that cannot be written is a reject."""
    rows = [change.before for change in changes]
    if not any(rows) and rows.count(None) == len(rows):
        return pa.nulls(len(rows), pa.string())
    written = json_texts(rows)
    return pa.array(_before_one_by_one(changes, rejects) if written is None else written, pa.string())


def _before_one_by_one(changes: Sequence[Change], rejects: dict[int, str]) -> list[str | None]:
    found: list[str | None] = []
    for row, change in enumerate(changes):
        text = None
        if change.before is not None:
            try:
                text = json_text(change.before)
            except ConversionError as refused:
                rejects.setdefault(row, f"the row as it was before cannot be kept: {refused}")
        found.append(text)
    return found


# -- rows

Roots = Mapping[int, Mapping[str, Any]]
Rejects = dict[int, str]

_EMPTY: Row = {}
_NO_ROOTS: Roots = {}
_WITH_ROW: frozenset[Operation] = frozenset({"insert", "update", "read"})


def typed_changes(
    kept: Sequence[ArrivedChange], plan: SchemaPlan, key: Sequence[str]
) -> tuple[pa.Table, dict[int, str], bool]:
    """Return the changes as Arrow, those that do not fit, and whether rows moved to another key."""
    rows = [item.change for item in kept]
    unnamed = any(not row.identity and row.number is None for row in rows)
    roots = key_changes(rows, key)
    typed, unfit = arrow_table(
        rows,
        plan,
        key,
        # An insert alone is whole: only an update that changed the key may lack any column.
        partial_inserts=frozenset(row for row in roots if rows[row].moved_from or rows[row].unchanged),
        roots=roots,
        fallback_ids=[event_id(item) for item in kept] if unnamed else (),
    )
    return typed, unfit, bool(roots)


def arrow_table(
    changes: Sequence[Change],
    plan: SchemaPlan,
    key: Sequence[str],
    *,
    fallback_ids: Sequence[str] = (),
    partial_inserts: Collection[int] = (),
    roots: Roots = _NO_ROOTS,
) -> tuple[pa.Table, Rejects]:
    """Return the table, and the reason, by row number, of each change that is not in it.

    The changes are in order. `fallback_ids[row]` identifies an event that has neither identity nor number.
    For the inserts in `partial_inserts`, a missing column is absent (a key that moved), not null.
    """
    rejects: Rejects = {}
    staging = _RowColumns(changes, plan, key)
    columns = columns_of(staging.rows, [column.name for column in plan.columns])
    arrays = {
        column.name: staging.column(column, values, rejects)
        for column, values in zip(plan.columns, columns, strict=True)
    }
    staging.check_keys(arrays, rejects)
    arrays |= {
        f"{STAGING_PREFIX}{name}": array
        for name, array in {
            **change_metadata(changes, fallback_ids),
            "before": before_column(changes, rejects),
            "absent": staging.absent(arrays, partial_inserts),
            **(staging.roots(roots, rejects) if roots else {}),
        }.items()
    }
    table = pa.table(list(arrays.values()), names=list(arrays))
    if rejects:
        table = table.take(pa.array([row for row in range(len(changes)) if row not in rejects], pa.int64()))
    sequence = pa.arange(0, len(table))
    return table.add_column(len(plan.columns), f"{STAGING_PREFIX}seq", sequence), rejects


class _RowColumns:
    """The changes as rows, and the declared types of each."""

    def __init__(self, changes: Sequence[Change], plan: SchemaPlan, key: Sequence[str]) -> None:
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
        """Convert all values at once, or in groups by how the changes declare the column."""
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
            unfit |= {rows[index]: reason for index, reason in reasons.items()}
        indexes = pa.array(sorted(range(len(order)), key=order.__getitem__), pa.int64())
        return pa.concat_arrays(parts).take(indexes), unfit

    def _key_values(self, name: str, values: list[Any]) -> list[Any]:
        from_row_id = len(self.key) == 1
        if self.key == [ROW_ID]:
            return [_named(change) for change in self.changes]
        for row in [row for row, value in enumerate(values) if value is None]:
            values[row] = _key_value(self.changes[row], name, from_row_id=from_row_id)
        return values

    def check_keys(self, arrays: Mapping[str, pa.Array], rejects: Rejects) -> None:
        """Check that every change except a truncate has its whole key."""
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
            may_be_kept = change.unchanged is None or column.name in change.unchanged
            kept = change.operation == "update" and column.name not in self.rows[row] and may_be_kept
            if change.operation in _WITH_ROW and not kept:
                rejects.setdefault(row, f'column "{column.name}": null, but the table requires a value')

    def absent(self, arrays: Mapping[str, pa.Array], partial_inserts: Collection[int]) -> pa.Array:
        """Return, for updates and partial inserts, the columns that their row does not have."""
        found: list[list[str] | None] = [None] * len(self.rows)
        names = self._perhaps_absent(arrays)
        if names:
            indexes = self._keeping(partial_inserts)
            shapes = [(tuple(self.rows[index]), self._unchanged(index)) for index in indexes]
            lacking = {
                (shape, kept): [
                    name for name in names if name not in shape and (kept is None or name in kept)
                ]
                for shape, kept in set(shapes)
            }
            for index, shape in zip(indexes, shapes, strict=True):
                found[index] = lacking[shape] or None
        return pa.array(found, pa.list_(pa.string()))

    def _unchanged(self, index: int) -> tuple[str, ...] | None:
        kept = self.changes[index].unchanged
        return None if kept is None else tuple(kept)

    def _perhaps_absent(self, arrays: Mapping[str, pa.Array]) -> list[str]:
        """Return the columns that may be absent: not those with a value in every row, and no key column."""
        operations = [change.operation for change in self.changes]
        nulls = len(operations) - sum(map(operations.count, _WITH_ROW))
        return [
            column.name
            for column in self.plan.columns
            if column.name not in self.key and arrays[column.name].null_count > nulls
        ]

    def _keeping(self, partial_inserts: Collection[int]) -> list[int]:
        """Return the changes that keep the values they do not mention."""
        return [
            index
            for index, change in enumerate(self.changes)
            if change.operation == "update" or (change.operation == "insert" and index in partial_inserts)
        ]

    def roots(self, roots: Roots, rejects: Rejects) -> dict[str, pa.Array]:
        """Return the columns `root_<key>`, typed like the key."""
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
    """Return a key value that is not in the row itself; in `before`, the key is certain."""
    if change.operation == "truncate":
        return None
    rows = (change.before, change.after) if change.operation == "delete" else (change.after, change.before)
    for row in rows:
        if row is not None and name in row:
            return row[name]
    return change.row_id if from_row_id else None


def _null_rows(array: pa.Array) -> list[int]:
    return [row for row, null in enumerate(array.is_null().to_pylist()) if null]
