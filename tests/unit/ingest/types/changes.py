"""Short ways to write changes and tables for the tests of this folder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from catalog.metadata.tables import new_table
from ingest.change import Change, Declared
from ingest.staging.targets import create_table_body
from ingest.types.schema_plan import Policy, SchemaPlan, plan

TABLE = ("shop", "customers")
STAMP = ("_commit_timestamp", "timestamptz")


def insert(row: dict[str, Any], **rest: Any) -> Change:
    return Change(0, TABLE, "insert", after=row, **rest)


def update(row: dict[str, Any], **rest: Any) -> Change:
    return Change(0, TABLE, "update", after=row, **rest)


def delete(row: dict[str, Any] | None, **rest: Any) -> Change:
    return Change(0, TABLE, "delete", before=row, **rest)


def truncate() -> Change:
    return Change(0, TABLE, "truncate")


def declared(columns: dict[str, Any], **encodings: str) -> Declared:
    return Declared(columns, encodings)


def planned(
    changes: Sequence[Change],
    existing: dict[str, Any] | None = None,
    *,
    policy: Policy = "evolve",
    key: Sequence[str] = ("id",),
    extra: Sequence[tuple[str, str]] = (STAMP,),
    last_column_id: int | None = None,
) -> SchemaPlan:
    last = highest_id(existing) if last_column_id is None else last_column_id
    return plan(existing, changes, policy=policy, key=key, extra=extra, last_column_id=last)


def created(found: SchemaPlan) -> dict[str, Any]:
    """The metadata of the table that the catalog makes for the plan."""
    assert found.schema is not None
    request = create_table_body("customers", found.schema, None, {"format-version": "2"})
    return new_table(
        request, location="file:///lake/t", table_uuid="11111111-2222-4333-8444-555555555555", now_ms=1
    )


def highest_id(type_: Any) -> int:
    if isinstance(type_, dict):
        ids: list[int] = [
            value for key, value in type_.items() if key in ("id", "element-id", "key-id", "value-id")
        ]
        return max([0, *ids, *(highest_id(value) for value in type_.values())])
    return max([0, *map(highest_id, type_)]) if isinstance(type_, list) else 0
