"""What a table's changes become: which Iceberg tables, with which key and columns, and the calls that make
them so. Pure over the metadata documents it is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from catalog.errors import Invalid
from ingest.batches import requests
from ingest.batches.keys import (
    NO_KEY,
    ROW_ID,
    current_schema,
    is_append_only,
    key_of_table,
    with_row_ids,
)
from ingest.batches.requests import Request
from ingest.change import Change, Declared, TableName
from ingest.columns.schemas import Plan, create_request, partition_spec, plan, schema_updates
from ingest.formats.contract import reserved
from ingest.landing.settings import CHANGES_SUFFIX, TableSettings

Metadata = Mapping[str, Any]
CHANGE_TYPES = {
    "operation": "string",
    "commit-timestamp": "timestamptz",
    "source-timestamp": "timestamptz",
    "source": "string",
    "position": "string",
    "transaction": "string",
    "event-id": "string",
    "before": "string",
}


@dataclass(slots=True)
class Target:
    """`mirror` and `changes` are table names, None where there is none."""

    table: TableName
    key: tuple[str, ...]
    plan: Plan
    mirror: str | None
    changes: str | None
    append_only: bool
    requests: list[Request] = field(default_factory=list)
    notice: str | None = None


def target(
    table: TableName,
    settings: TableSettings,
    mirror: Metadata | None,
    changes_table: Metadata | None,
    changes: Sequence[Change],
) -> Target:
    """`mirror` and `changes_table` are the metadata of the tables as they are, None where they are not."""
    reason = reserved(table[-1])
    if reason is not None:
        raise Invalid(f"the table is reserved: {reason}")
    schema = current_schema(mirror)
    key = key_of_table(settings.key, schema, changes)
    if key == (ROW_ID,):
        with_row_ids(changes)
    wants_mirror, wants_changes = settings.mode != "changes", settings.mode in ("mirror+changes", "changes")
    append_only = settings.mode == "append"
    notice = None
    if not key and wants_mirror and not append_only:
        if mirror is not None or is_append_only(changes):
            append_only = True
            wants_changes = wants_changes and (mirror is None or changes_table is not None)
            wants_changes = wants_changes and not (mirror is None and is_append_only(changes))
        else:
            wants_mirror, wants_changes, notice = False, True, NO_KEY
    extra = [(settings.names["commit-timestamp"], "timestamptz")]
    change_columns = [(settings.names[name], type_) for name, type_ in CHANGE_TYPES.items()]
    main = plan(
        schema if wants_mirror else current_schema(changes_table),
        changes,
        policy=settings.policy,
        key=() if append_only or not wants_mirror else key,
        extra=extra if wants_mirror else change_columns,
        last_column_id=_last_column_id(mirror if wants_mirror else changes_table),
        reserved=tuple(settings.names.values()),
    )
    found = Target(
        table,
        () if append_only else key,
        main,
        table[-1] if wants_mirror else None,
        table[-1] + CHANGES_SUFFIX if wants_changes else None,
        append_only,
        notice=notice,
    )
    if wants_mirror:
        found.requests += _ensure(table, settings, mirror, main, list(settings.partition))
    if wants_changes:
        beside = _of_same_columns(main, table, changes_table, change_columns) if wants_mirror else main
        stamp = settings.names["commit-timestamp"]
        wanted = settings.changes_partition
        parts = [f"days({stamp})"] if wanted is None else list(wanted)
        name = (*table[:-1], table[-1] + CHANGES_SUFFIX)
        found.requests += _ensure(name, settings, changes_table, beside, parts)
    return found


def _last_column_id(metadata: Metadata | None) -> int:
    return int(metadata["last-column-id"]) if metadata is not None else 0


def _of_same_columns(
    main: Plan, table: TableName, existing: Metadata | None, extra: Sequence[tuple[str, str]]
) -> Plan:
    """The plan of the changes table: it has the mirror's columns, whatever they are."""
    declared = Declared({column.name: column.type for column in main.columns})
    like = [Change(0, table, "insert", after={}, declared=declared)]
    return plan(
        current_schema(existing),
        like,
        policy="evolve",
        key=(),
        extra=extra,
        last_column_id=_last_column_id(existing),
    )


def _ensure(
    table: TableName, settings: TableSettings, metadata: Metadata | None, wanted: Plan, partition: list[str]
) -> list[Request]:
    made = requests.missing_properties(table, metadata) if metadata is not None else []
    if wanted.schema is None:
        return made
    if metadata is not None:
        return [*made, requests.commit(table, schema_updates(metadata, wanted.schema))]
    properties = {**requests.PROPERTIES, "format-version": str(settings.format_version)}
    spec = partition_spec(wanted.schema, partition) if partition else None
    body = create_request(table[-1], wanted.schema, spec, {**properties, **settings.properties})
    return [requests.create(table, body)]
