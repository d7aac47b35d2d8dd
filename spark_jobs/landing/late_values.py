"""Values of late changes that still count. Pure, over Arrow.

A late change does not undo newer ones. But if all newer changes of its row have left a column out, as
PostgreSQL does with a large value that did not change, its value is the one that the row has at the source.
Then a correction follows the late change: an update of these columns alone, at the position of the newest
change of the row. The changes table gets it, too, so that a fold of the changes gives the same row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from spark_jobs.landing.columns import keys_of, texts
from spark_jobs.landing.value_sources import Key
from spark_jobs.messages import STAGED, TableJob

CORRECTION = "~late"  # how the event id of a correction ends: that of the late change, and this

# For (source, key): the position of each change, and the columns that it left out.
LeftOut = Mapping[tuple[str, Key], Sequence[tuple[str, frozenset[str]]]]
Corrections = dict[int, list[str]]  # the row of a late change, and its columns that still count


def still_counting(
    table: pa.Table,
    job: TableJob,
    keys: Sequence[Key | None],
    current: Sequence[bool],
    left_out: LeftOut,
    living: Callable[[list[Key]], set[Key]],
) -> Corrections:
    """Return the columns of late changes that still count. `current` are the changes that are not late.
    `living` returns those of some keys that the mirror has. A batch with truncates has no corrections: the
    rows of the mirror behind them are not known.
    """
    if job.counts["truncate"]:
        return {}
    operations, sources, positions, absent = (
        table.column(f"{STAGED}{name}").to_pylist() for name in ("operation", "source", "position", "absent")
    )
    found: Corrections = {}
    is_alive: dict[Key, bool] = {}  # as current changes of the batch say
    unsure: dict[int, Key] = {}
    for row, key in enumerate(keys):
        if current[row]:
            is_alive[key] = operations[row] != "delete"
        elif operations[row] != "delete" and key is not None and is_alive.get(key, True):
            columns = left_out_since(left_out.get((sources[row] or "", key), ()), positions[row])
            own = [column for column in job.columns if column in columns.difference(absent[row] or ())]
            if own:
                found[row] = own
                if key not in is_alive:
                    unsure[row] = key
    if unsure:
        mirror_has = living(list(dict.fromkeys(unsure.values())))
        found = {row: own for row, own in found.items() if row not in unsure or unsure[row] in mirror_has}
    return found


def left_out_since(changes: Sequence[tuple[str, frozenset[str]]], position: str) -> frozenset[str]:
    """Return the columns that every newer change has left out."""
    newer = [columns for other, columns in changes if other > position]
    return frozenset.intersection(*newer) if newer else frozenset()


def corrected(
    table: pa.Table,
    job: TableJob,
    keys: Sequence[Key | None],
    current: Sequence[bool],
    found: Corrections,
    newest: Mapping[tuple[str, Key], str],
    times_us: Mapping[tuple[str, Key], int | None],
) -> tuple[pa.Table, list[bool]]:
    """Return the table with a correction behind each of these rows, and which of its rows are current.
    `newest` and `times_us` are the position and the time of the newest change of a row.
    """
    rows = list(found)
    added = table.take(pa.array(rows, pa.int64()))
    sources = added.column(f"{STAGED}source").to_pylist()
    marks = [(source or "", keys[row]) for source, row in zip(sources, rows, strict=True)]
    ids = added.column(f"{STAGED}event_id").to_pylist()
    values: dict[str, list[object]] = {
        "operation": ["update"] * len(rows),
        "position": [newest[mark] for mark in marks],
        "source_timestamp": [times_us.get(mark) for mark in marks],
        "transaction": [None] * len(rows),
        "event_id": [f"{id_}{CORRECTION}" for id_ in ids],
        "before": [None] * len(rows),
        "absent": [
            [column for column in job.columns if column not in found[row] and column not in job.key]
            for row in rows
        ],
        **{f"root_{column}": [None] * len(rows) for column in job.key if job.has_moves},
    }
    for name, given in values.items():
        index = added.schema.get_field_index(f"{STAGED}{name}")
        field = added.schema.field(index)
        added = added.set_column(index, field, pa.array(given, field.type))
    behind = {row: table.num_rows + number for number, row in enumerate(rows)}
    order = [at for row in range(table.num_rows) for at in (row, behind.get(row)) if at is not None]
    is_current = [at >= table.num_rows or current[at] for at in order]
    return pa.concat_tables([table, added]).take(pa.array(order, pa.int64())), is_current


def lost_rows(table: pa.Table, job: TableJob, current: Sequence[bool], left_out: LeftOut) -> frozenset[int]:
    """Return the rows that have moved from another key and lack values that are not known any more.

    The delete before such a row is late: another row has taken the old key since. Or the row itself is late,
    and newer changes left out the same columns.
    """
    names = ([f"{part}{name}" for name in job.key] for part in ("", f"{STAGED}root_"))
    keys, roots = (keys_of(table, columns) for columns in names)
    absent = table.column(f"{STAGED}absent").to_pylist()
    sources, positions = texts(table, "source"), texts(table, "position")
    found = []
    for row in range(1, table.num_rows):
        if roots[row] is None or not absent[row]:
            continue
        newer = left_out_since(left_out.get((sources[row], keys[row]), ()), positions[row])
        overtaken = roots[row] == keys[row - 1] and not current[row - 1]
        is_lost = overtaken if current[row] else bool(newer.intersection(absent[row]))
        if is_lost:
            found.append(row)
    return frozenset(found)
