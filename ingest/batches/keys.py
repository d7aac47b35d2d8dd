"""The key of a table: what makes two rows the same row. Pure.

Best first: what the owner set, the identifier fields of the table as it is, what the producer said, a column
`id` that every change has, the producer's own name for the row. Without any, rows can only be appended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ingest.change import Change

ROW_ID = "_cdc_row_id"  # the column that holds a producer's own name for the row, where there is no other key
NO_KEY = (
    "no key is known, so updates and deletes cannot be applied to the table: set one with "
    "PUT /lake/v1/{warehouse}/namespaces/{namespace}/tables/{table}/ingest, with ?key= in the producer's "
    "address, or as identifier fields of the table"
)


def key_of_table(
    chosen: Sequence[str] | None, schema: Mapping[str, Any] | None, changes: Sequence[Change]
) -> tuple[str, ...]:
    """The key columns; empty if none is known."""
    if chosen:
        return tuple(chosen)
    if schema is not None:
        identifiers = set(schema.get("identifier-field-ids", ()))
        return tuple(field["name"] for field in schema["fields"] if field["id"] in identifiers)
    rows = [change for change in changes if change.operation != "truncate"]
    for change in rows:
        if change.key:
            return change.key
    named = [change for change in rows if change.row_id is not None]
    if named:
        return ("id",) if all(_is_named_by_id(change) for change in named) else (ROW_ID,)
    if rows and not is_append_only(rows) and all(_known(change, "id") is not None for change in rows):
        return ("id",)
    return ()


def current_schema(metadata: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The schema of a table's metadata document that readers see; None where there is no table."""
    if metadata is None:
        return None
    wanted = metadata["current-schema-id"]
    found: dict[str, Any] = next(s for s in metadata["schemas"] if s["schema-id"] == wanted)
    return found


def with_row_ids(changes: Sequence[Change]) -> None:
    """Put the producer's name for the row into it, where that is the key."""
    for change in changes:
        if change.row_id is None:
            continue
        if change.after is not None:
            change.after = {**change.after, ROW_ID: change.row_id}
        change.before = {**(change.before or {}), ROW_ID: change.row_id}


def is_append_only(changes: Sequence[Change]) -> bool:
    """Plain rows: nothing but inserts, from a producer that says that they have no key."""
    return all(change.operation == "insert" and change.key == () for change in changes)


def _known(change: Change, column: str) -> Any:
    row = change.after if change.after is not None else change.before
    return (row or {}).get(column)


def _is_named_by_id(change: Change) -> bool:
    value = _known(change, "id")
    if value is None:
        return change.operation == "delete"  # its row is not sent; the name is enough
    return str(value) == change.row_id
