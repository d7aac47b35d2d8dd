"""Compute the rows of a mirror from the changes of some keys. Pure, over Arrow.

The changes apply in the order in which they landed: by the time of their batch, then by their order in it. A
change is late, and is ignored, if an earlier batch landed a newer position of the same source and key;
landing applies the same rule. A column that an update left out keeps the value that its row had.
"""

from __future__ import annotations

import functools
import json
import uuid
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from spark_jobs.messages import STAGED, BadJob, TableJob
from spark_jobs.tables.key_files import encode

ROW_NUMBER = f"{STAGED}place"  # of a row in the changes table: its order if the batch recorded none
MOVED = f"{STAGED}moved"  # an update that moved the row from another key
_GONE = -1


# -- keys


def keyed(rows: pa.Table, job: TableJob) -> pa.Table:
    """Fill in missing key values from the row before the change, where it is known.

    If the table had another key once, an update that changes the current key gets a delete of its old key
    beside it.
    """
    before = _before(rows, job)
    for column in job.key:
        values = rows.column(column)
        if values.null_count and before:
            missing = pc.indices_nonzero(values.is_null()).to_pylist()
            found = {row: before[row][column] for row in missing if row in before and column in before[row]}
            if found:
                rows = _with_values(rows, column, found, job)
    rows = rows.append_column(MOVED, pa.repeat(pa.scalar(value=False), rows.num_rows))
    return _with_moves(rows, before, job) if job.rekeyed and before else rows


def missing_key_reason(rows: pa.Table, job: TableJob) -> str | None:
    """Return why the mirror cannot be rebuilt from these changes: a change has no key. None if all
    have one.
    """
    is_row = pc.not_equal(rows.column(f"{STAGED}operation"), "truncate")
    for column in job.key:
        missing = rows.filter(pc.and_(is_row, rows.column(column).is_null()))
        if missing.num_rows:
            first = missing.slice(0, 1).to_pylist()[0]
            return (
                f"{job.label}: the change at position {first[f'{STAGED}position'] or 'unknown'} "
                f"({first[f'{STAGED}operation']}) has no value in the key column {column}, so the mirror "
                "cannot be rebuilt from its changes table: set another key, or resync the table from its "
                "source"
            )
    return None


def _before(rows: pa.Table, job: TableJob) -> dict[int, dict[str, Any]]:
    """Return the rows before the change, for the changes that need them."""
    operations, texts = rows.column(f"{STAGED}operation"), rows.column(f"{STAGED}before")
    lacks_key = functools.reduce(pc.or_, [rows.column(column).is_null() for column in job.key])
    wanted = pc.and_(pc.equal(operations, "delete"), lacks_key)  # it landed while the table had another key
    if job.rekeyed:
        wanted = pc.or_(wanted, pc.equal(operations, "update"))
    indices = pc.indices_nonzero(pc.and_(wanted, texts.is_valid()))
    found = zip(indices.to_pylist(), texts.take(indices).to_pylist(), strict=True)
    return {row: given for row, text in found if isinstance(given := json.loads(text), dict)}


def _with_values(rows: pa.Table, column: str, found: dict[int, Any], job: TableJob) -> pa.Table:
    values = rows.column(column)
    given = _typed(list(found.values()), values.type, column, job)
    order: list[int] = list(range(rows.num_rows))
    for number, row in enumerate(found):
        order[row] = rows.num_rows + number
    joined = pa.chunked_array([*values.chunks, given], values.type).take(pa.array(order, pa.int64()))
    return rows.set_column(rows.schema.get_field_index(column), column, joined)


def _typed(values: Sequence[Any], type_: pa.DataType, column: str, job: TableJob) -> pa.Array:
    """Convert JSON values to the type of a key column. Some types cannot be converted: a date may be a number
    of days.
    """
    try:
        if pat.is_string(type_) or pat.is_large_string(type_):
            return pa.array(
                [None if v is None else v if isinstance(v, str) else json.dumps(v) for v in values], type_
            )
        if pat.is_integer(type_):
            return pa.array([None if v is None else int(v) for v in values], type_)
        if pat.is_boolean(type_):
            return pa.array(values, type_)
        if type_ == pa.binary(16):
            return pa.array([None if v is None else uuid.UUID(v).bytes for v in values], type_)
    except (ValueError, TypeError, AttributeError, OverflowError, pa.ArrowInvalid) as error:
        raise BadJob(f"{job.label}: a value of {column} in a row before its change: {error}") from error
    raise BadJob(
        f"{job.label}: the key column {column} has the type {type_}, whose values before a change cannot be "
        "compared: resync the table from its source"
    )


def _with_moves(rows: pa.Table, before: dict[int, dict[str, Any]], job: TableJob) -> pa.Table:
    operations = rows.column(f"{STAGED}operation").to_pylist()
    moves = [
        row
        for row, given in before.items()
        if operations[row] == "update" and all(given.get(column) is not None for column in job.key)
    ]
    if not moves:
        return rows
    updates = rows.take(pa.array(moves, pa.int64()))
    old = {
        column: _typed([before[row][column] for row in moves], rows.column(column).type, column, job)
        for column in job.key
    }
    now = encode([updates.column(column) for column in job.key])
    changed = pc.not_equal(encode([old[column] for column in job.key]), now)
    if not pc.any(changed).as_py():
        return rows
    deletes = updates
    for column in rows.column_names:
        index = deletes.schema.get_field_index(column)
        if column in old:
            deletes = deletes.set_column(index, column, old[column])
        elif column == f"{STAGED}operation":
            deletes = deletes.set_column(
                index, column, pa.repeat(pa.scalar("delete", updates.schema.field(index).type), len(moves))
            )
        elif column in job.columns or column == f"{STAGED}absent":
            deletes = deletes.set_column(
                index, column, pa.nulls(len(moves), updates.schema.field(index).type)
            )
    moved = {row for row, is_ in zip(moves, changed.to_pylist(), strict=True) if is_}
    flags = pa.array([row in moved for row in range(rows.num_rows)], pa.bool_())
    # Its missing values were filled from the row under its old key when it landed.
    absent = rows.column(f"{STAGED}absent")
    final = pc.if_else(flags, pa.scalar(None, absent.type), absent)
    rows = rows.set_column(rows.schema.get_field_index(MOVED), MOVED, flags)
    rows = rows.set_column(rows.schema.get_field_index(f"{STAGED}absent"), f"{STAGED}absent", final)
    # The deletes come first, because the sort is stable and both have the same row number.
    return pa.concat_tables([deletes.filter(changed), rows])


# -- the fold


def replayed(changes: pa.Table, job: TableJob) -> pa.Table:
    """Return the rows that the mirror has after these changes, each with the time of its batch."""
    order = [
        (f"{STAGED}commit_timestamp", "ascending"),
        (f"{STAGED}order", "ascending"),
        (ROW_NUMBER, "ascending"),
    ]
    changes = changes.take(pc.sort_indices(changes, sort_keys=order))
    numbers = encode([changes.column(column) for column in job.key]).dictionary_encode().indices
    if _is_plain(changes):
        rows = _last_of_each(changes, numbers)
    else:
        rows = _Replay(changes, numbers).rows()
    stamp = rows.column(f"{STAGED}commit_timestamp")
    return pa.table(
        [*(rows.column(column) for column in job.columns), stamp],
        names=[*job.columns, job.names["commit-timestamp"]],
    )


def _is_plain(changes: pa.Table) -> bool:
    """Return whether the last change of each key decides alone: no truncates, no missing values, no late
    changes.
    """
    if pc.any(pc.equal(changes.column(f"{STAGED}operation"), "truncate")).as_py():
        return False
    if changes.column(f"{STAGED}absent").null_count < changes.num_rows:
        return False
    if pc.any(changes.column(MOVED)).as_py():
        return False
    source, stamp, position = (f"{STAGED}{name}" for name in ("source", "commit_timestamp", "position"))
    batches = (
        changes.select([source, stamp, position])
        .group_by([source, stamp])
        .aggregate([(position, "min"), (position, "max")])
    )
    newest: dict[str, str] = {}
    for batch in batches.sort_by(stamp).to_pylist():
        known = newest.get(batch[source], "")
        if batch[f"{position}_min"] and batch[f"{position}_min"] < known:
            return False
        if not batch[f"{position}_min"] and batch[f"{position}_max"]:
            return False  # some have positions and some have none
        newest[batch[source]] = max(known, batch[f"{position}_max"] or "")
    return True


def _last_of_each(changes: pa.Table, numbers: pa.Array) -> pa.Table:
    row = pa.array(range(changes.num_rows), pa.int64())
    found = pa.table([numbers, row], names=["key", "row"]).group_by("key").aggregate([("row", "max")])
    last = changes.take(found.column("row_max").combine_chunks().sort())
    return last.filter(pc.not_equal(last.column(f"{STAGED}operation"), "delete"))


class _Newest:
    """The newest position in the batches before the current one."""

    __slots__ = ("_before", "_now", "_stamp")

    def __init__(self) -> None:
        self._before, self._now, self._stamp = "", "", None

    def before(self, stamp: Any) -> str:
        if stamp != self._stamp:
            self._before, self._now, self._stamp = max(self._before, self._now), "", stamp
        return self._before

    def note(self, position: str) -> None:
        """Record a position. Call `before` for the same batch first."""
        self._now = max(self._now, position)


class _Replay:
    """Applies the changes of some keys one after the other."""

    def __init__(self, changes: pa.Table, numbers: pa.Array) -> None:
        self._changes = changes
        self._keys: list[int | None] = numbers.to_pylist()
        self._row: dict[int, int] = {}  # the change that last wrote the row of a key
        # by key and column: the change that the value comes from, if it is another one
        self._value_sources: dict[int, dict[str, int | None]] = {}
        self._newest: dict[tuple[int, str], _Newest] = {}
        self._emptied: dict[str, _Newest] = {}
        self._hidden: dict[tuple[int, str, str], int] = {}

    def rows(self) -> pa.Table:
        names = ("operation", "commit_timestamp", "source", "position", "transaction", "absent")
        columns = [self._changes.column(f"{STAGED}{name}") for name in names]
        columns[1] = columns[1].cast(pa.int64())
        values = [column.to_pylist() for column in columns]
        values[2], values[3] = ([value or "" for value in values[index]] for index in (2, 3))
        moved = self._changes.column(MOVED).to_pylist()
        for row, (operation, stamp, source, position, transaction, absent) in enumerate(
            zip(*values, strict=True)
        ):
            emptied = self._emptied.setdefault(source, _Newest())
            last_truncate = emptied.before(stamp)
            if operation == "truncate":
                self._truncate(stamp, source, position)
                emptied.note(position)
                continue
            key = self._keys[row]
            assert key is not None
            newest = self._newest.setdefault((key, source), _Newest())
            known = max(newest.before(stamp), last_truncate)
            newest.note(position)
            if position and known > position:
                continue
            mark = (key, source, transaction) if transaction is not None else None
            if operation == "delete":
                self._delete(key, mark)
            else:
                if moved[row] and mark is not None and key in self._row:
                    self._hidden[mark] = self._hidden.get(mark, 0) + 1
                self._write(row, key, json.loads(absent) if absent else ())
        return self._result()

    def _truncate(self, stamp: int, source: str, position: str) -> None:
        """Apply a truncate. Rows with a newer change of the same source stay."""
        for key in list(self._row):
            newest = self._newest.get((key, source))
            if not position or newest is None or newest.before(stamp) <= position:
                self._forget(key)
        self._hidden.clear()

    def _delete(self, key: int, mark: tuple[int, str, str] | None) -> None:
        if mark is not None and self._hidden.get(mark):
            # the delete refers to the row that had the key before another one took it over
            self._hidden[mark] -= 1
        else:
            self._forget(key)

    def _forget(self, key: int) -> None:
        self._row.pop(key, None)
        self._value_sources.pop(key, None)

    def _write(self, row: int, key: int, absent: Sequence[str]) -> None:
        former = self._row.get(key)
        sources = self._value_sources.pop(key, {})
        if absent:
            self._value_sources[key] = {column: sources.get(column, former) for column in absent}
        self._row[key] = row

    def _result(self) -> pa.Table:
        keys = sorted(self._row, key=self._row.__getitem__)
        table = self._changes.take(pa.array([self._row[key] for key in keys], pa.int64()))
        columns = {column for sources in self._value_sources.values() for column in sources}
        for column in sorted(columns & set(table.column_names)):
            indices = [self._value_sources.get(key, {}).get(column, self._row[key]) for key in keys]
            values = self._changes.column(column).take(pa.array(indices, pa.int64()))
            table = table.set_column(table.schema.get_field_index(column), column, values)
        return table
