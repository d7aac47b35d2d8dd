"""Compute the difference of one table between two moments: rows, schema, files.

Only rows that may differ are read (differing.py). With a key, a row of the same key on both sides is changed
or, if all values are equal, unchanged: rows that a compaction moved to another file are not a difference.
Without a key, equal rows on both sides cancel out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from catalog.errors import Conflict
from query.tables.access import TableAccess
from query.tables.differing import differing
from query.tables.keys import key_columns
from query.tables.moments import table_at
from query.tables.reading import schema_at
from query.tables.row_difference import NEW, OLD, comparison


def diff_table(
    access: TableAccess, from_: str, to: str | None, limit: int, deadline_s: float | None
) -> dict[str, Any]:
    old, new = table_at(access, from_, "from"), table_at(access, to, "to")
    if old.table.metadata.table_uuid != new.table.metadata.table_uuid:
        raise Conflict(
            f"{access.identifier} is another table since: it was dropped and made again between the moments"
        )
    # Both sides have the columns of the later moment, which can hold the values of the earlier one: a column
    # that was added between them is null there.
    schema = schema_at(max(old, new, key=lambda moment: moment.time_ms))
    key = key_columns(access, schema)
    only_old, only_new, files = differing(old, new)
    with comparison(schema_to_pyarrow(schema, include_field_ids=False), deadline_s) as compared:
        compared.fill(OLD, only_old.batches(schema))
        compared.fill(NEW, only_new.batches(schema))
        rows = compared.compared(key, limit)
    return {
        "from": old.as_json(),
        "to": new.as_json(),
        "rows": rows,
        "schema": list(schema_changes(schema_at(old), schema_at(new))),
        "files": files,
    }


def schema_changes(old: Schema, new: Schema) -> Iterator[dict[str, Any]]:
    """Return the differences of two schemas, column by column; a column is identified by its field id."""
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
