"""Apply column renames of the source: earlier changes get the new name, and the table keeps the
field. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ingest.change import Change, Declared, Row, TableName
from ingest.identity import ArrivedChange, Key, current_schema
from ingest.settings import TableSettings, TypeChanges
from ingest.staging.targets import (
    CatalogRequest,
    Metadata,
    TablePlan,
    commit_table,
    plan_table,
    schema_updates,
)

Renames = list[tuple[str, str]]  # (old name, new name), in order


def without_renames(ordered: list[ArrivedChange]) -> tuple[list[ArrivedChange], Renames]:
    """Return the changes of rows, with the column names after all renames, and the renames."""
    kept: list[ArrivedChange] = []
    renames: Renames = []
    for item in ordered:
        if item.change.operation != "rename":
            kept.append(item)
            continue
        for old, new in zip(item.change.before or (), item.change.after or (), strict=False):
            renames.append((old, new))
            for earlier in kept:
                earlier.change = _renamed(earlier.change, old, new)
    return kept, renames


def renamed_key(key: Key, renames: Renames) -> Key:
    columns = key.columns
    for old, new in renames:
        columns = tuple(new if column == old else column for column in columns)
    return Key(columns, key.reason)


def renamed_schema(schema: dict[str, Any] | None, renames: Renames) -> dict[str, Any] | None:
    """Return the schema with the new names. A new name that another column has is not used."""
    if schema is None:
        return None
    fields = list(schema["fields"])
    for old, new in renames:
        names = [field["name"] for field in fields]
        if old in names and new not in names:
            index = names.index(old)
            fields[index] = fields[index] | {"name": new}
    return schema if fields == schema["fields"] else {**schema, "fields": fields}


def plan_renamed(
    table: TableName,
    settings: TableSettings,
    tables: tuple[Metadata | None, Metadata | None],
    changes: Sequence[Change],
    renames: Renames,
    known: Key,
    of_source: Callable[[], TypeChanges],
) -> TablePlan:
    """Return the plan of a table with the new names. `tables` are the mirror and the changes table as they
    are.
    """
    mirror, beside = (with_names(one, renames) for one in tables)
    found = plan_table(table, settings, mirror, beside, changes, known, of_source)
    found.requests += rename_requests(found, tables, renames)
    return found


def with_names(table: Metadata | None, renames: Renames) -> Metadata | None:
    """Return the metadata of a table as if its columns had the new names already."""
    schema = renamed_schema(current_schema(table), renames)
    if table is None or schema is None:
        return None
    schemas = [schema if one["schema-id"] == schema["schema-id"] else one for one in table["schemas"]]
    return {**table, "schemas": schemas}


def rename_requests(
    plan: TablePlan, tables: Sequence[Metadata | None], renames: Renames
) -> list[CatalogRequest]:
    """Return the commits that rename columns of the mirror and the changes table. A commit of the plan that
    sets a schema has the new names already.
    """
    found = []
    for name, table in zip((plan.mirror, plan.changes), tables, strict=True):
        schema = renamed_schema(current_schema(table), renames)
        if name is None or table is None or schema is None or schema == current_schema(table):
            continue
        if not any(request["table"] == name and _sets_schema(request) for request in plan.requests):
            found.append(commit_table((*plan.table[:-1], name), schema_updates(table, schema)))
    return found


def _sets_schema(request: CatalogRequest) -> bool:
    return any(one["action"] == "add-schema" for one in request.get("commit", {}).get("updates", ()))


def _renamed(change: Change, old: str, new: str) -> Change:
    declared = change.declared
    if declared is not None and old in declared.columns:
        required = frozenset(new if name == old else name for name in declared.required)
        columns, encodings = _moved(declared.columns, old, new), _moved(declared.encodings, old, new)
        declared = Declared(columns, encodings, required, _moved(declared.defaults, old, new))
    names = change.unchanged
    return replace(
        change,
        before=_row(change.before, old, new),
        after=_row(change.after, old, new),
        key=tuple(new if name == old else name for name in change.key) if change.key else change.key,
        unchanged=None if names is None else tuple(new if name == old else name for name in names),
        declared=declared,
    )


def _row(row: Row | None, old: str, new: str) -> Row | None:
    return row if row is None or old not in row or new in row else _moved(row, old, new)


def _moved(values: Mapping[str, Any], old: str, new: str) -> dict[str, Any]:
    return {new if name == old else name: value for name, value in values.items()}
