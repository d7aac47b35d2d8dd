"""Order the changes of one table in one publish. The order does not depend on the files that have them.

The worker notes the number of each change in its batch. That is the order, except that changes of one source
follow its positions, as in the mirror. Older changes tables have no such numbers. There a task of the worker
wrote the changes of its share of the keys into its own files, in the order in which they apply, so the files
in the order of their names keep the order of each key. If all changes are of one source, they are sorted by
position. With several sources, a truncate must not overtake changes in the files of other shares: all changes
of its source that have a lower position come before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def change_order(sizes: Sequence[int], rows: pa.Table, names: Mapping[str, str]) -> list[int] | None:
    """Return the indices of the rows in order; None if they are in order already. `sizes` are the rows of
    each file.
    """
    if rows.num_rows < 2:
        return None
    sources, positions, operations = (
        _texts(rows, names[name]) for name in ("source", "position", "operation")
    )
    noted = _noted_order(rows, names)
    if noted is not None:
        found = _by_position(noted, sources, positions)
    elif len(set(sources)) == 1 and all(positions):
        found = sorted(range(rows.num_rows), key=positions.__getitem__)  # stable
    elif "truncate" in operations:
        found = _around_truncates(sizes, sources, positions, operations)
    else:
        return None
    return None if found == list(range(rows.num_rows)) else found


def _noted_order(rows: pa.Table, names: Mapping[str, str]) -> list[int] | None:
    """By what the worker noted; None unless every change has it."""
    column = names.get("order")
    if column is None or column not in rows.column_names or rows.column(column).null_count:
        return None
    numbers, ids = rows.column(column).to_pylist(), _texts(rows, names["event-id"])
    return sorted(range(rows.num_rows), key=lambda row: (numbers[row], ids[row]))


def _texts(rows: pa.Table, column: str) -> list[str]:
    if column not in rows.column_names:
        return [""] * rows.num_rows
    values: list[Any] = rows.column(column).to_pylist()
    return [value or "" for value in values]


def _by_position(order: Sequence[int], sources: Sequence[str], positions: Sequence[str]) -> list[int]:
    """Sort the changes of each source by position, within the slots that they have in the order."""
    slots: dict[str, list[int]] = {}
    for slot, row in enumerate(order):
        if positions[row]:
            slots.setdefault(sources[row], []).append(slot)
    found = list(order)
    for own in slots.values():
        rows = sorted((order[slot] for slot in own), key=positions.__getitem__)  # stable
        for slot, row in zip(own, rows, strict=True):
            found[slot] = row
    return found


def _around_truncates(
    sizes: Sequence[int], sources: Sequence[str], positions: Sequence[str], operations: Sequence[str]
) -> list[int]:
    files, first = [], 0
    for size in sizes:
        files.append(deque(row for row in range(first, first + size) if operations[row] != "truncate"))
        first += size
    truncates = [row for row, operation in enumerate(operations) if operation == "truncate"]
    found: list[int] = []
    for index, truncate in enumerate(truncates):
        # the next truncate of each source
        waiting = {sources[row]: positions[row] for row in reversed(truncates[index:])}
        for rows in files:
            while rows and not (
                sources[rows[0]] in waiting and positions[rows[0]] > waiting[sources[rows[0]]]
            ):
                found.append(rows.popleft())
        found.append(truncate)
    return [*found, *(row for rows in files for row in rows)]
