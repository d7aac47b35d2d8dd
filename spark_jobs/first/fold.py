"""A batch folded: complete change rows for the history, and for the mirror the last word on each key. Pure.

The batch is an Arrow table in memory, at most some hundred thousand rows, so the fold itself costs
milliseconds; what it needs from tables (`base`, `newest`, `seen`) has been fetched by Spark with a join on the
keys of this batch alone.

- A column that a change leaves out keeps its value: from the change before it in the batch, else from the
  mirror's row. After a delete there is nothing to keep, unless the key only moved: then the row under the new
  key begins with the values of the old one.
- A truncate ends everything before it.
- A change that is older than what the table knows of its key stays out of the mirror. A change that the
  history has already is dropped.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

SEQ, OPERATION, ABSENT = "_calve_seq", "_calve_operation", "_calve_absent"
SOURCE, POSITION, EVENT_ID = "_calve_source", "_calve_position", "_calve_event_id"
ROOT = "_calve_root_"

Key = tuple[Any, ...]
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Folded:
    """`changes` has the columns of the batch; `upserts` the row columns; `gone` the keys to remove first."""

    changes: pa.Table
    upserts: pa.Table
    gone: pa.Table
    truncated: bool


def fold(
    batch: pa.Table,
    columns: Sequence[str],
    key: Sequence[str],
    *,
    base: Mapping[Key, Row] | None = None,
    newest: Mapping[tuple[str, Key], str] | None = None,
    seen: Collection[str] = (),
) -> Folded:
    """The batch is in order of `_calve_seq`."""
    if seen:
        known = pc.is_in(batch[EVENT_ID], value_set=pa.array(list(seen), pa.string()))
        batch = batch.filter(pc.invert(known))
    if base is not None:
        batch = filled(batch, columns, key, base)
    mirror = batch
    cut = _last_truncate(batch)
    if cut is not None:
        mirror = mirror.slice(cut + 1)
    if newest:
        mirror = mirror.filter(pa.array(_newer(mirror, key, newest), pa.bool_()))
    last = last_of_each_key(mirror, key)
    is_delete = pc.equal(last[OPERATION], "delete")
    upserts = last.filter(pc.invert(is_delete)).select(list(columns))
    return Folded(batch, upserts, last.select(list(key)), truncated=cut is not None)


def last_of_each_key(batch: pa.Table, key: Sequence[str]) -> pa.Table:
    """The newest row of each key, in the order of the batch."""
    if len(batch) < 2:
        return batch
    numbered = batch.select(list(key)).append_column("_n", pa.array(range(len(batch)), pa.int64()))
    last = numbered.group_by(list(key), use_threads=False).aggregate([("_n", "max")])["_n_max"]
    return batch if len(last) == len(batch) else batch.take(last.take(pc.sort_indices(last)))


def _last_truncate(batch: pa.Table) -> int | None:
    found = pc.indices_nonzero(pc.equal(batch[OPERATION], "truncate"))
    return found[-1].as_py() if len(found) else None


def _newer(batch: pa.Table, key: Sequence[str], newest: Mapping[tuple[str, Key], str]) -> list[bool]:
    """Which rows are newer than what the history has of their key from the same source."""
    keys, sources = keys_of(batch, key), batch[SOURCE].to_pylist()
    positions = batch[POSITION].to_pylist()
    return [
        not position or position > newest.get((source or "", row), "")
        for row, source, position in zip(keys, sources, positions, strict=True)
    ]


def keys_of(table: pa.Table, key: Sequence[str]) -> list[Key]:
    return list(zip(*(table[name].to_pylist() for name in key), strict=True)) if len(table) else []


def needed_from_mirror(batch: pa.Table, key: Sequence[str]) -> set[Key]:
    """The keys whose row in the mirror may be asked for a value."""
    absent = batch[ABSENT].to_pylist()
    found = {own for own, missing in zip(keys_of(batch, key), absent, strict=True) if missing}
    if ROOT + key[0] in batch.column_names:
        roots = keys_of(batch.select([ROOT + name for name in key]), [ROOT + name for name in key])
        found |= {root for root in roots if all(part is not None for part in root)}
    return found


def filled(batch: pa.Table, columns: Sequence[str], key: Sequence[str], base: Mapping[Key, Row]) -> pa.Table:
    """The batch with every missing value filled in, walking it in order."""
    absents, operations = batch[ABSENT].to_pylist(), batch[OPERATION].to_pylist()
    keys, roots = keys_of(batch, key), _roots(batch, key)
    concerned = needed_from_mirror(batch, key)
    values = {name: batch[name].to_pylist() for name in columns}
    state: dict[Key, Row | None] = {}
    left: dict[Key, Row | None] = {}  # what a key had when it was deleted: a move begins with it
    for number, own in enumerate(keys):
        root = roots[number]
        if operations[number] == "truncate":
            state = dict.fromkeys(concerned)
            continue
        if own not in concerned and root is None and own not in state:
            continue
        before = state[own] if own in state else base.get(own)
        if operations[number] == "delete":
            left[own], state[own] = before, None
            continue
        if root is not None:
            before = left[root] if root in left else (state[root] if root in state else base.get(root))
        for name in absents[number] or ():
            values[name][number] = (before or {}).get(name)
        state[own] = {name: values[name][number] for name in columns}
    touched = {name for missing in absents if missing for name in missing}
    for name in touched:
        place, known = batch.schema.get_field_index(name), batch.schema.field(name)
        batch = batch.set_column(place, known, pa.array(values[name], known.type))
    return batch


def _roots(batch: pa.Table, key: Sequence[str]) -> list[Key | None]:
    names = [ROOT + name for name in key]
    if names[0] not in batch.column_names:
        return [None] * len(batch)
    found = keys_of(batch.select(names), names)
    return [root if all(part is not None for part in root) else None for root in found]
