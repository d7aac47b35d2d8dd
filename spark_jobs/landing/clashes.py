"""Find inserts that contradict a guessed key: inserts of a key that another row has. Pure, over Arrow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from spark_jobs.messages import STAGED, TableJob

IS_DELETED = "_is_deleted"  # from a row that was soft-deleted
KEPT = 20
Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Clashes:
    count: int = 0
    differing: tuple[tuple[str, ...], ...] = ()  # for some of them, the columns whose values differ


def clashes(
    table: pa.Table,
    job: TableJob,
    keys: Sequence[object],
    current: Sequence[bool] | None,
    living: Callable[[list[object], list[str]], dict[object, dict[str, object]]] | None,
) -> Clashes:
    """Return the inserts that contradict the key. `keys[row]` is the key of a row; `living` returns the rows
    that the mirror has for keys.
    """
    operations = table.column(f"{STAGED}operation").to_pylist()
    moved = _moved(table, job)
    last: dict[object, int | None] = {}  # the row that wrote a key last; None if it was deleted
    pairs: list[tuple[int, int]] = []
    first: dict[object, int] = {}  # inserts whose key the mirror may have
    emptied = living is None
    for row, operation in enumerate(operations):
        if current is not None and not current[row]:
            continue
        key = keys[row]
        if operation == "truncate":
            last.clear()
            emptied = True
        elif operation == "delete":
            last[key] = None
        else:
            if not moved[row] and _claims_key(operation, operations, last.get(key)):
                former = last.get(key)
                if former is not None:
                    pairs.append((former, row))
                elif key not in last and not emptied and (operation == "insert" or job.first_load):
                    first[key] = row
            last[key] = row
    return _compared(table, job, pairs, first, living)


def _claims_key(operation: str, operations: Sequence[str], former: int | None) -> bool:
    """Return whether the row must be the first of its key. A row that is read again replaces an earlier one,
    unless the same load read both.
    """
    if operation == "insert":
        return True
    return operation == "read" and (former is None or operations[former] == "read")


def _moved(table: pa.Table, job: TableJob) -> list[bool]:
    name = f"{STAGED}root_{job.key[0]}"
    if not job.has_moves or name not in table.column_names:
        return [False] * table.num_rows
    found: list[bool] = table.column(name).is_valid().to_pylist()
    return found


def _compared(
    table: pa.Table,
    job: TableJob,
    pairs: Sequence[tuple[int, int]],
    first: dict[object, int],
    living: Callable[[list[object], list[str]], dict[object, dict[str, object]]] | None,
) -> Clashes:
    columns = [column for column in job.columns if column not in job.key]
    old = living(list(first), columns) if first and living is not None else {}
    wanted = sorted({row for pair in pairs for row in pair} | {first[key] for key in old})
    if not wanted or not columns:
        return Clashes()
    values = table.select(columns).take(pa.array(wanted, pa.int64())).to_pylist()
    row_of = dict(zip(wanted, values, strict=True))
    both = [(row_of[one], row_of[two]) for one, two in pairs]
    both += [(found, row_of[first[key]]) for key, found in old.items()]
    differing = [
        tuple(column for column in columns if one[column] != two[column])
        for one, two in both
        if not one.get(IS_DELETED)
    ]
    differing = [names for names in differing if names]  # the same row again is a repeat
    return Clashes(len(differing), tuple(differing[:KEPT]))
