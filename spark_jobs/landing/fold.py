"""Fold the staged rows of a batch to the rows that are written. Pure, over Arrow.

`fold` returns the complete rows for `<table>__changes`, and for the mirror the last row of each key. `past`
describes what the changes table already has (for late batches), and `bases` reads the rows of the mirror that
missing values come from.

A column that an event leaves out keeps its old value. That value is in an earlier event of the same row in
this batch, or in the mirror. After a key change it is in the row that was deleted just before, over any
number of key changes. A new row takes no values from a deleted row of the same key, nor from a row before a
truncate.

Inside one source transaction, a row may move to a key that another row leaves later, as when two rows swap
their keys. The delete that follows then refers to the row that had the key before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.landing.clashes import Clashes, clashes
from spark_jobs.landing.columns import keys_of, texts
from spark_jobs.landing.late_values import LeftOut, corrected, lost_rows, still_counting
from spark_jobs.landing.value_sources import Key, Transaction, sources
from spark_jobs.messages import STAGED, BadJob, TableJob

DELETE = f"{STAGED}delete"  # of a folded row: delete the key from the mirror
BASE = f"{STAGED}base"  # the number of a row of the mirror that missing values come from
TIMESTAMP = pa.timestamp("us", tz="UTC")
SMALL_ROWS_MAX = 10_000

# Arguments: the keys and numbers of the requested rows, and the requested columns.
Bases = Callable[[pa.Table, list[str]], pa.Table]


@dataclass(frozen=True, slots=True)
class Past:
    """What the changes table has already. `known`: (source, event id). `newest`: the newest position of
    (source, key). `emptied`: the newest truncate of a source. `left_out`: the columns that changes left out.
    `times_us`: the time at the source of the newest change.
    """

    known: frozenset[tuple[str, str]] = frozenset()
    newest: dict[tuple[str, Key], str] = field(default_factory=dict)
    emptied: dict[str, str] = field(default_factory=dict)
    left_out: LeftOut = field(default_factory=dict)
    times_us: dict[tuple[str, Key], int | None] = field(default_factory=dict)

    def is_new(self, table: pa.Table) -> pa.Array:
        marks = zip(texts(table, "source"), texts(table, "event_id"), strict=True)
        return pa.array([mark not in self.known for mark in marks], pa.bool_())

    def is_current(self, table: pa.Table, key: Sequence[str]) -> list[bool]:
        facts = zip(
            texts(table, "operation"),
            texts(table, "source"),
            texts(table, "position"),
            keys_of(table, key),
            strict=True,
        )
        return [
            not position
            or operation == "truncate"  # the code that applies a truncate compares the changes itself
            or max(self.newest.get((source, row), ""), self.emptied.get(source, "")) <= position
            for operation, source, position, row in facts
        ]

    def survivors(self, table: pa.Table) -> dict[int, set[Key]]:
        """Return the keys that have a newer change than a truncate of their source, by the row of the
        truncate.
        """
        facts = zip(*(texts(table, name) for name in ("operation", "source", "position")), strict=True)
        return {
            row: {key for (other, key), at in self.newest.items() if other == source and at > position}
            for row, (operation, source, position) in enumerate(facts)
            if operation == "truncate" and position
        }


@dataclass(frozen=True, slots=True)
class LateTruncate:
    """A truncate that arrives late: rows with a newer change of the same source stay."""

    source: str
    position: str


@dataclass(frozen=True, slots=True)
class MirrorRows:
    """One row for each key: the columns of the mirror, and `DELETE`. If `truncated` is set, the mirror is
    emptied first.
    """

    rows: pa.Table
    truncated: bool = False
    late_truncates: tuple[LateTruncate, ...] = ()


@dataclass(frozen=True, slots=True)
class Folded:
    changes: pa.Table | None
    mirror: MirrorRows | None
    repeated: int = 0  # events that the changes table already has
    clashes: Clashes = field(default_factory=Clashes)
    lost: int = 0  # rows with missing values that are not known any more


def fold(
    table: pa.Table, job: TableJob, commit_us: int, *, past: Past | None = None, bases: Bases | None = None
) -> Folded:
    """Fold a batch. `past` is given for late batches of tables with a changes table, `bases` if there is a
    mirror.
    """
    table = _in_order(table)
    _check_keys(table, job)
    repeated = 0
    current = None  # rows that are not older than those in the tables
    if past is not None:
        is_new = past.is_new(table)
        repeated = is_new.false_count
        table = table.filter(is_new)
        current = past.is_current(table, job.key)
        if past.left_out and bases is not None:
            table, job, current = _with_late_values(table, job, current, past, bases)
    hidden: dict[int, int] = {}
    lost: frozenset[int] = frozenset()
    if (job.has_absent or job.has_moves) and table.num_rows:
        if past is not None and current is not None and job.has_moves:
            lost = lost_rows(table, job, current, past.left_out)
        table, hidden = _completed(table, job, current, bases, lost, past)
    return Folded(
        changes=change_rows(table, job, commit_us, hidden) if job.changes is not None else None,
        mirror=_mirror_rows(table, job, commit_us, current, hidden) if job.mirror is not None else None,
        repeated=repeated,
        clashes=_clashes(table, job, current, bases) if job.guessed else Clashes(),
        lost=len(lost),
    )


def _with_late_values(
    table: pa.Table, job: TableJob, current: list[bool], past: Past, bases: Bases
) -> tuple[pa.Table, TableJob, list[bool]]:
    """Add a correction behind each late change that has values for columns that newer changes left out."""

    def living(wanted: list[Key]) -> set[Key]:
        _, index_of = _old_rows(wanted, table, job, bases, [job.key[0]])
        return {wanted[number] for number in index_of}

    keys = keys_of(table, job.key)
    found = still_counting(table, job, keys, current, past.left_out, living)
    if not found:
        return table, job, current
    table, current = corrected(table, job, keys, current, found, past.newest, past.times_us)
    return table, job.model_copy(update={"has_absent": True}), current


def _clashes(table: pa.Table, job: TableJob, current: Sequence[bool] | None, bases: Bases | None) -> Clashes:
    def living(wanted: list[Key], columns: list[str]) -> dict[Key, dict[str, object]]:
        answer, index_of = _old_rows(wanted, table, job, bases, columns)
        rows = answer.select(columns).to_pylist() if answer is not None else []
        return {wanted[number]: rows[index] for number, index in index_of.items()}

    return clashes(table, job, keys_of(table, job.key), current, living if bases is not None else None)


def _in_order(table: pa.Table) -> pa.Table:
    order = table.column(f"{STAGED}seq")
    if table.num_rows < 2 or pc.all(pc.less(order[:-1], order[1:])).as_py():
        return table
    return table.sort_by(f"{STAGED}seq")


def _check_keys(table: pa.Table, job: TableJob) -> None:
    for column in job.key:
        if table.column(column).null_count > job.counts["truncate"]:
            raise BadJob(f"{job.label}: the key column {column} is null in a row of the batch")


def change_rows(
    table: pa.Table, job: TableJob, commit_us: int, hidden: Mapping[int, int] | None = None
) -> pa.Table:
    """Return the rows of the changes table: all events, with the columns that describe them."""
    computed = {
        "commit-timestamp": pa.repeat(pa.scalar(commit_us, TIMESTAMP), table.num_rows),
        "order": _order(table, hidden or {}),
        "absent": _absent(table, job),
    }
    metadata = [
        computed[name] if name in computed else table.column(f"{STAGED}{name.replace('-', '_')}")
        for name in job.names
    ]
    return pa.table(
        [*(table.column(column) for column in job.columns), *metadata],
        names=[*job.columns, *job.names.values()],
    )


def _order(table: pa.Table, hidden: Mapping[int, int]) -> pa.ChunkedArray | pa.Array:
    """Return the order in which the changes of a key apply within the batch. A hidden delete applies just
    before the row that took over its key.
    """
    order = pc.add(pc.multiply(table.column(f"{STAGED}seq"), 2), 1)
    if not hidden:
        return order
    numbers = order.to_pylist()
    return pa.array(
        [numbers[hidden[row]] - 1 if row in hidden else number for row, number in enumerate(numbers)],
        pa.int64(),
    )


def _absent(table: pa.Table, job: TableJob) -> pa.Array:
    """Return, as JSON, the columns that an update left out.

    An insert that lacks values is half of a key change: its values came from another row and are final.
    """
    if not job.has_absent:
        return pa.nulls(table.num_rows, pa.string())
    operations = table.column(f"{STAGED}operation").to_pylist()
    names = table.column(f"{STAGED}absent").to_pylist()
    return pa.array(
        [
            json.dumps(missing) if missing and operation == "update" else None
            for operation, missing in zip(operations, names, strict=True)
        ],
        pa.string(),
    )


def _mirror_rows(
    table: pa.Table,
    job: TableJob,
    commit_us: int,
    current: Sequence[bool] | None,
    hidden: Mapping[int, int],
) -> MirrorRows:
    """Return the rows of the mirror. `hidden` are deletes of rows whose key another row has taken over."""
    operations = table.column(f"{STAGED}operation")
    if job.append_only:
        rows = table.filter(pc.invert(pc.is_in(operations, pa.array(["delete", "truncate"]))))
        return MirrorRows(_written(rows, job, commit_us))
    truncates = _indices(operations, "truncate") if job.counts["truncate"] else []
    late = [LateTruncate(_text(table, "source", at), _text(table, "position", at)) for at in truncates]
    # A truncate without a position applies in the order of arrival, to all rows.
    truncated = bool(late) and (current is None or not all(truncate.position for truncate in late))
    counts = current
    if hidden:
        known = [True] * table.num_rows if current is None else current
        counts = [is_ and row not in hidden for row, is_ in enumerate(known)]
    if truncates:
        start = truncates[-1] + 1
        table = table.slice(start)
        counts = counts[start:] if counts is not None else None
    folded = _last_of_each(table, job.key, counts)
    return MirrorRows(
        _written(folded, job, commit_us),
        truncated=truncated,
        late_truncates=() if truncated else tuple(late),
    )


def _written(rows: pa.Table, job: TableJob, commit_us: int) -> pa.Table:
    stamp = pa.repeat(pa.scalar(commit_us, TIMESTAMP), rows.num_rows)
    gone = pc.equal(rows.column(f"{STAGED}operation"), "delete")
    return pa.table(
        [*(rows.column(column) for column in job.columns), stamp, gone],
        names=[*job.columns, job.names["commit-timestamp"], DELETE],
    )


def _last_of_each(table: pa.Table, key: Sequence[str], current: Sequence[bool] | None) -> pa.Table:
    if table.num_rows < 2 and current is None:
        return table
    names = [str(number) for number in range(len(key))]
    row = pa.array(range(table.num_rows), pa.int64())
    keyed = pa.table([*(table.column(column) for column in key), row], names=[*names, "row"])
    if current is not None:
        keyed = keyed.filter(pa.array(current, pa.bool_()))
    use_threads = keyed.num_rows > SMALL_ROWS_MAX  # starting threads takes longer than the work
    indices = keyed.group_by(names, use_threads=use_threads).aggregate([("row", "max")]).column("row_max")
    if len(indices) == table.num_rows:
        return table
    return table.take(indices.combine_chunks().sort())


def _completed(
    table: pa.Table,
    job: TableJob,
    current: Sequence[bool] | None,
    bases: Bases | None,
    lost: frozenset[int],
    past: Past | None,
) -> tuple[pa.Table, dict[int, int]]:
    """Fill in missing values, and return the deletes of rows that another row hides.

    A row that arrives late keeps its gaps: its state at that time is not known here, and null is better than
    a value of another time.
    """
    rows = range(table.num_rows) if current is None else [r for r, is_ in enumerate(current) if is_]
    picked = table if current is None else table.take(pa.array(list(rows), pa.int64()))
    operations, keys = picked.column(f"{STAGED}operation").to_pylist(), keys_of(picked, job.key)
    roots: list[Key | None] = [None] * picked.num_rows
    if job.has_moves:
        roots = keys_of(picked, [f"{STAGED}root_{column}" for column in job.key])
    found = sources(
        operations,
        keys,
        roots,
        picked.column(f"{STAGED}absent").to_pylist(),
        mirror=bases is not None,
        transactions=_transactions(picked) if job.has_moves else None,
        living=_living(operations, keys, roots, picked, job, bases) if job.has_moves else frozenset(),
        lost=frozenset(number for number, row in enumerate(rows) if row in lost),
        survivors=past.survivors(picked) if past is not None else {},
    )
    base, index_of = _old_rows(found.bases, picked, job, bases, sorted(found.of))
    numbers = list(rows)
    for column, indices in found.of.items():
        indices_of_values: list[int | None] = list(range(table.num_rows))
        for row, source in indices.items():
            if source is None:
                indices_of_values[numbers[row]] = None
            elif source >= 0:
                indices_of_values[numbers[row]] = numbers[source]
            else:
                index = index_of.get(-1 - source)
                indices_of_values[numbers[row]] = None if index is None else table.num_rows + index
        table = _with_values(table, column, base, indices_of_values)
    return table, {numbers[row]: numbers[taker] for row, taker in found.hidden.items()}


def _transactions(table: pa.Table) -> list[Transaction | None]:
    names = table.column(f"{STAGED}transaction").to_pylist()
    return [
        None if name is None else (source, name)
        for source, name in zip(texts(table, "source"), names, strict=True)
    ]


def _living(
    operations: Sequence[str],
    keys: Sequence[Key | None],
    roots: Sequence[Key | None],
    table: pa.Table,
    job: TableJob,
    bases: Bases | None,
) -> frozenset[Key]:
    """Return the keys that the mirror has, among those that rows move to and that are also deleted."""
    entered = {key for key, root in zip(keys, roots, strict=True) if root is not None and key is not None}
    left = {key for key, operation in zip(keys, operations, strict=True) if operation == "delete"}
    wanted = [key for key in entered if key in left]
    _, index_of = _old_rows(wanted, table, job, bases, [job.key[0]])
    return frozenset(wanted[number] for number in index_of)


def _old_rows(
    wanted: Sequence[Key], table: pa.Table, job: TableJob, bases: Bases | None, columns: list[str]
) -> tuple[pa.Table | None, dict[int, int]]:
    """Return rows of the mirror, and the index of each in the result of `bases`."""
    if not wanted or bases is None:
        return None, {}
    parts = zip(*wanted, strict=True) if job.key else ()
    arrays = [
        pa.array(values, table.schema.field(column).type)
        for column, values in zip(job.key, parts, strict=True)
    ]
    requested = pa.table([*arrays, pa.array(range(len(wanted)), pa.int64())], names=[*job.key, BASE])
    answer = bases(requested, columns)
    return answer, {number: index for index, number in enumerate(answer.column(BASE).to_pylist())}


def _with_values(
    table: pa.Table, column: str, base: pa.Table | None, indices_of_values: Sequence[int | None]
) -> pa.Table:
    own = table.column(column)
    chunks = list(own.chunks)
    if base is not None:
        chunks += base.column(column).cast(own.type).chunks
    values = pa.chunked_array(chunks, own.type).take(pa.array(indices_of_values, pa.int64()))
    return table.set_column(table.schema.get_field_index(column), table.schema.field(column), values)


def _indices(column: pa.ChunkedArray, value: str) -> list[int]:
    indices: list[int] = pc.indices_nonzero(pc.equal(column, value)).to_pylist()
    return indices


def _text(table: pa.Table, name: str, index: int) -> str:
    return table.column(f"{STAGED}{name}")[index].as_py() or ""
