"""The difference of one table between two moments: rows, schema, files.

Files that are part of both states in the same form have the same rows, so only the others are read. With a
key, a row of the same key on both sides is changed or, if all values are equal, unchanged: rows that a
compaction moved to another file are no difference. Without a key, equal rows on both sides cancel out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask

from catalog.errors import Conflict
from query.formats import values as json_values
from query.tables.access import TableAccess
from query.tables.keys import key_columns
from query.tables.moments import TableMoment, table_at
from query.tables.reading import json_rows, planned, read_within, scan_at, schema_at

ROWS_MAX = 2_000_000  # of each side, in files that are not part of both states
KEYLESS_ROWS_MAX = 200_000
ADVICE = "choose moments that are closer together, or compare with /query"
_OLD, _NEW = "__old", "__new"


def diff_table(access: TableAccess, from_: str, to: str | None, limit: int) -> dict[str, Any]:
    old, new = table_at(access, from_, "from"), table_at(access, to, "to")
    if old.table.metadata.table_uuid != new.table.metadata.table_uuid:
        raise Conflict(
            f"{access.identifier} is another table since: it was dropped and made again between the moments"
        )
    # Both sides in the columns of the later moment, which can hold the values of the earlier one: a column
    # that was added between them is null there.
    schema = schema_at(max(old, new, key=lambda moment: moment.time_ms))
    key = key_columns(access, schema)
    only_old, only_new, files = _files(old, new)
    return {
        "from": old.as_json(),
        "to": new.as_json(),
        "rows": _rows(_read(old, only_old, schema, key), _read(new, only_new, schema, key), key, limit),
        "schema": list(schema_changes(schema_at(old), schema_at(new))),
        "files": files,
    }


def _files(
    old: TableMoment, new: TableMoment
) -> tuple[list[FileScanTask], list[FileScanTask], dict[str, int]]:
    """The files to read of each side, and the numbers of all."""
    before = {_content(task): task for task in planned(scan_at(old))}
    after = {_content(task): task for task in planned(scan_at(new))}
    old_paths = {path: task for (path, _), task in before.items()}
    new_paths = {path: task for (path, _), task in after.items()}
    added = [task for path, task in new_paths.items() if path not in old_paths]
    removed = [task for path, task in old_paths.items() if path not in new_paths]
    numbers = {
        "added": len(added),
        "removed": len(removed),
        "kept": len(new_paths) - len(added),
        "added_bytes": sum(task.file.file_size_in_bytes for task in added),
        "removed_bytes": sum(task.file.file_size_in_bytes for task in removed),
    }
    only_old = [task for content, task in before.items() if content not in after]
    only_new = [task for content, task in after.items() if content not in before]
    return only_old, only_new, numbers


def _content(task: FileScanTask) -> tuple[str, tuple[str, ...]]:
    """A data file with its delete files: what decides about its rows."""
    deletes = (f"{file.file_path}#{getattr(file, 'content_offset', None)}" for file in task.delete_files)
    return task.file.file_path, tuple(sorted(deletes))


def _read(
    moment: TableMoment, tasks: Sequence[FileScanTask], schema: Schema, key: tuple[str, ...]
) -> pa.Table:
    rows_max = ROWS_MAX if key else KEYLESS_ROWS_MAX
    return read_within(scan_at(moment), tasks, rows_max, ADVICE, schema)


def _rows(before: pa.Table, after: pa.Table, key: tuple[str, ...], limit: int) -> dict[str, Any]:
    if key and _is_unique(before, key) and _is_unique(after, key):
        return _by_key(before, after, key, limit)
    return _as_whole(before, after, limit)


def _is_unique(table: pa.Table, key: tuple[str, ...]) -> bool:
    return bool(table.select(key).group_by(list(key)).aggregate([]).num_rows == table.num_rows)


def _by_key(before: pa.Table, after: pa.Table, key: tuple[str, ...], limit: int) -> dict[str, Any]:
    pairs = _numbered(before, key, _OLD).join(
        _numbered(after, key, _NEW), list(key), join_type="full outer", coalesce_keys=True
    )
    pairs = pairs.sort_by([(column, "ascending") for column in key])
    old, new = pairs.column(_OLD), pairs.column(_NEW)
    removed = before.take(old.filter(pc.is_null(new)))
    added = after.take(new.filter(pc.is_null(old)))
    both = pc.and_(pc.is_valid(old), pc.is_valid(new))
    was, now = before.take(old.filter(both)), after.take(new.filter(both))
    differs = {
        column: _differs(was.column(column), now.column(column))
        for column in was.column_names
        if column not in key
    }
    is_changed = _any(list(differs.values()), was.num_rows)
    changed = pc.sum(is_changed).as_py() or 0
    return {
        "key": list(key),
        "added_count": added.num_rows,
        "removed_count": removed.num_rows,
        "changed_count": changed,
        "added": json_rows(added.slice(0, limit)),
        "removed": json_rows(removed.slice(0, limit)),
        "changed": list(_changed(was, now, differs, pc.indices_nonzero(is_changed).slice(0, limit), key)),
        "truncated": max(added.num_rows, removed.num_rows, changed) > limit,
    }


def _numbered(table: pa.Table, key: tuple[str, ...], name: str) -> pa.Table:
    return table.select(key).append_column(name, pa.array(range(table.num_rows), pa.int64()))


def _differs(old: pa.ChunkedArray, new: pa.ChunkedArray) -> pa.Array:
    """Where two columns have different values; two nulls are equal, as are two NaN."""
    if pa.types.is_nested(old.type) or pa.types.is_floating(old.type):
        pairs = zip(_texts(old), _texts(new), strict=True)
        return pa.array([one != other for one, other in pairs], pa.bool_())
    unequal = pc.fill_null(pc.not_equal(old, new), False)
    return pc.or_(unequal, pc.xor(pc.is_null(old), pc.is_null(new)))


def _texts(column: pa.ChunkedArray) -> list[Any]:
    """Values that can be compared: JSON holds each of them exactly."""
    return [value for chunk in column.chunks for value in json_values(chunk)]


def _any(columns: list[pa.Array], length: int) -> pa.Array:
    found = pa.chunked_array([pa.array([False] * length, pa.bool_())])
    for column in columns:
        found = pc.or_(found, column)
    return found


def _changed(
    was: pa.Table, now: pa.Table, differs: dict[str, pa.Array], places: pa.Array, key: tuple[str, ...]
) -> Iterator[dict[str, Any]]:
    flags = {column: flag.take(places).to_pylist() for column, flag in differs.items()}
    rows = zip(json_rows(was.take(places)), json_rows(now.take(places)), strict=True)
    for index, (old, new) in enumerate(rows):
        columns = [column for column, found in flags.items() if found[index]]
        yield {
            "key": {column: new[column] for column in key},
            "old": {column: old[column] for column in columns},
            "new": {column: new[column] for column in columns},
        }


def _as_whole(before: pa.Table, after: pa.Table, limit: int) -> dict[str, Any]:
    old = Counter(orjson.dumps(row) for row in json_rows(before))
    new = Counter(orjson.dumps(row) for row in json_rows(after))
    added, removed = list((new - old).elements()), list((old - new).elements())
    return {
        "key": None,
        "added_count": len(added),
        "removed_count": len(removed),
        "changed_count": 0,
        "added": [orjson.loads(row) for row in added[:limit]],
        "removed": [orjson.loads(row) for row in removed[:limit]],
        "changed": [],
        "truncated": max(len(added), len(removed)) > limit,
    }


def schema_changes(old: Schema, new: Schema) -> Iterator[dict[str, Any]]:
    """The differences of two schemas, column by column; a column is its field id."""
    before = {field.field_id: field for field in old.fields}
    after = {field.field_id: field for field in new.fields}
    for id_, field in after.items():
        if id_ not in before:
            yield _change(field.name, "added", None, str(field.field_type))
            continue
        former = before[id_]
        for change, one, other in (
            ("renamed", former.name, field.name),
            ("type", str(former.field_type), str(field.field_type)),
            ("required", former.required, field.required),
            ("comment", former.doc, field.doc),
        ):
            if one != other:
                yield _change(field.name, change, one, other)
    for id_, field in before.items():
        if id_ not in after:
            yield _change(field.name, "dropped", str(field.field_type), None)
    kept_before = [id_ for id_ in before if id_ in after]
    kept_after = [id_ for id_ in after if id_ in before]
    for old_id, new_id in zip(kept_before, kept_after, strict=True):
        if old_id != new_id:
            yield _change(after[new_id].name, "moved", kept_before.index(new_id), kept_after.index(new_id))


def _change(column: str, change: str, old: Any, new: Any) -> dict[str, Any]:
    return {"column": column, "change": change, "old": old, "new": new}
