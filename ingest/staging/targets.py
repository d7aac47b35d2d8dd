"""The tables that a batch lands in: their state, key and columns, and the catalog requests that create them.

For a batch that is staged while the previous one is being landed, the state of a table is the expected one;
`digest` shows later whether that was right.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import orjson

from catalog.errors import Invalid
from catalog.names import Namespace
from catalog.services.catalog import CurrentState
from catalog.services.warehouse_state import WarehouseState
from ingest.change import Change, Declared, TableName, reserved
from ingest.identity import NO_KEY, ROW_ID, Key, current_schema, is_append_only, reasoned_key, with_row_ids
from ingest.settings import CHANGE_TYPES, TableSettings, TypeChanges
from ingest.staging.context import UNROUTED, BatchRange, Expected, StagingContext
from ingest.store.mirrors import why_paused
from ingest.store.resyncs import Resync, ended
from ingest.store.tables import CHANGES_SUFFIX, REJECTS_SUFFIX, LandedTable
from ingest.types.evolution import with_defaults
from ingest.types.schema_plan import SchemaPlan, partition_spec, plan
from ingest.types.type_changes import FOLLOWS_SOURCE, TypeChangeRules

CatalogRequest = dict[str, Any]
Metadata = dict[str, Any]

_WRITE_PROPERTIES = {
    "write.merge.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.delete.mode": "merge-on-read",
    "write.merge.isolation-level": "snapshot",
    "write.update.isolation-level": "snapshot",
    "write.delete.isolation-level": "snapshot",
    "write.delete.granularity": "file",
    "write.target-file-size-bytes": str(128 * 2**20),
}
# Each commit writes the whole document, so without deletion the files would grow with the square of time. The
# history can restore every version, so time travel needs none of them.
METADATA_PROPERTIES = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
TABLE_PROPERTIES = {**_WRITE_PROPERTIES, **METADATA_PROPERTIES}
REJECTS_SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": number, "name": name, "type": type_, "required": False}
        for number, (name, type_) in enumerate(
            (
                ("_rejected_at", "timestamptz"),
                ("_reason", "string"),
                ("_code", "string"),
                ("_source", "string"),
                ("_position", "string"),
                ("_original", "binary"),
                ("_dead_letter", "string"),
            ),
            start=1,
        )
    ],
}


def create_table(table: TableName, body: Mapping[str, Any]) -> CatalogRequest:
    return {"table": table[-1], "create": body}


def commit_table(table: TableName, body: Mapping[str, Any]) -> CatalogRequest:
    return {"table": table[-1], "commit": body}


def set_missing_properties(table: TableName, metadata: Mapping[str, Any]) -> list[CatalogRequest]:
    """Set the properties that limit the metadata files of a table, unless its owner has set them."""
    known = metadata.get("properties") or {}
    missing = {name: value for name, value in METADATA_PROPERTIES.items() if name not in known}
    if not missing:
        return []
    body = {
        "requirements": [{"type": "assert-table-uuid", "uuid": metadata["table-uuid"]}],
        "updates": [{"action": "set-properties", "updates": missing}],
    }
    return [commit_table(table, body)]


# -- bodies


def create_table_body(
    name: str,
    schema: dict[str, Any],
    partition: dict[str, Any] | None = None,
    properties: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return a CreateTableRequest. `partition` comes from `partition_spec`."""
    body: dict[str, Any] = {"name": name, "schema": schema, "properties": dict(properties or {})}
    return body | ({"partition-spec": partition} if partition else {})


def schema_updates(existing_metadata: Mapping[str, Any], new_schema: dict[str, Any]) -> dict[str, Any]:
    """Return a CommitTableRequest that makes `new_schema` the current one. It fails if the schema has
    changed.
    """
    return {
        "requirements": [
            {"type": "assert-table-uuid", "uuid": existing_metadata["table-uuid"]},
            {
                "type": "assert-current-schema-id",
                "current-schema-id": existing_metadata["current-schema-id"],
            },
            {
                "type": "assert-last-assigned-field-id",
                "last-assigned-field-id": existing_metadata["last-column-id"],
            },
        ],
        "updates": [
            {"action": "add-schema", "schema": new_schema},
            {"action": "set-current-schema", "schema-id": -1},
        ],
    }


# -- the plan of a table


@dataclass(slots=True)
class TablePlan:
    """`mirror` and `changes` are table names, None where there is no such table."""

    table: TableName
    key: tuple[str, ...]
    plan: SchemaPlan
    mirror: str | None
    changes: str | None
    append_only: bool
    requests: list[CatalogRequest] = field(default_factory=list)
    notice: str | None = None
    key_reason: str | None = None


def plan_table(
    table: TableName,
    settings: TableSettings,
    mirror: Metadata | None,
    changes_table: Metadata | None,
    changes: Sequence[Change],
    known: Key | None = None,
    of_source: Callable[[], TypeChanges] = lambda: "convert",
) -> TablePlan:
    """`mirror` and `changes_table`: the tables as they are. `known`: the key by which rows were landed.
    `of_source`: returns the rule of the source for type changes.
    """
    reason = reserved(table[-1])
    if reason is not None:
        raise Invalid(f"the table is reserved: {reason}")
    schema = current_schema(mirror)
    begins_anew = mirror is None and changes_table is None
    reasoned = reasoned_key(settings.key, schema, changes, None if begins_anew else known)
    if (key := reasoned.columns) == (ROW_ID,):
        with_row_ids(changes)
    has_mirror, has_changes = settings.mode != "changes", settings.mode in ("mirror+changes", "changes")
    append_only = settings.mode == "append"
    notice = None
    if not key and has_mirror and not append_only:
        if mirror is not None or is_append_only(changes):
            append_only = True
            has_changes = has_changes and (mirror is None or changes_table is not None)
            has_changes = has_changes and not (mirror is None and is_append_only(changes))
        else:
            has_mirror, has_changes, notice = False, True, NO_KEY
    extra = [(settings.names["commit-timestamp"], "timestamptz")]
    change_columns = [(settings.names[name], type_) for name, type_ in CHANGE_TYPES.items()]
    main = plan(
        schema if has_mirror else current_schema(changes_table),
        changes,
        policy=settings.policy,
        key=() if append_only or not has_mirror else key,
        extra=extra if has_mirror else change_columns,
        last_column_id=_last_column_id(mirror if has_mirror else changes_table),
        reserved=tuple(settings.names.values()),
        type_changes=lambda: TypeChangeRules.of_table(
            settings.type_changes or of_source(), (mirror if has_mirror else changes_table) or {}
        ),
    )
    found = TablePlan(
        table,
        () if append_only else key,
        main,
        table[-1] if has_mirror else None,
        table[-1] + CHANGES_SUFFIX if has_changes else None,
        append_only,
        notice=notice,
        key_reason=reasoned.reason,
    )
    if has_mirror:
        _set_defaults(main, mirror, changes)
        found.requests += _ensure(table, settings, mirror, main, list(settings.partition))
    if has_changes:
        changes_plan = _of_same_columns(main, table, changes_table, change_columns) if has_mirror else main
        _set_defaults(changes_plan, changes_table, changes)
        stamp = settings.names["commit-timestamp"]
        wanted = settings.changes_partition
        parts = [f"days({stamp})"] if wanted is None else list(wanted)
        name = (*table[:-1], table[-1] + CHANGES_SUFFIX)
        found.requests += _ensure(name, settings, changes_table, changes_plan, parts)
    return found


def _set_defaults(plan: SchemaPlan, table: Metadata | None, changes: Sequence[Change]) -> None:
    if table is not None and plan.schema is not None:
        with_defaults(plan, current_schema(table), changes, int(table["format-version"]))


def _last_column_id(metadata: Metadata | None) -> int:
    return int(metadata["last-column-id"]) if metadata is not None else 0


def _of_same_columns(
    main: SchemaPlan, table: TableName, existing: Metadata | None, extra: Sequence[tuple[str, str]]
) -> SchemaPlan:
    """Return the plan of the changes table: it has the columns of the mirror."""
    declared = Declared({column.name: column.type for column in main.columns})
    like = [Change(0, table, "insert", after={}, declared=declared)]
    return plan(
        current_schema(existing),
        like,
        policy="evolve",
        key=(),
        extra=extra,
        last_column_id=_last_column_id(existing),
        type_changes=lambda: TypeChangeRules("split" if main.split else "reject", follows_source=True),
    )


def _ensure(
    table: TableName,
    settings: TableSettings,
    metadata: Metadata | None,
    wanted: SchemaPlan,
    partition: list[str],
) -> list[CatalogRequest]:
    made = set_missing_properties(table, metadata) if metadata is not None else []
    if wanted.schema is None:
        return made
    if metadata is not None:
        return [*made, commit_table(table, schema_updates(metadata, wanted.schema))]
    properties = {**TABLE_PROPERTIES, FOLLOWS_SOURCE: "true", "format-version": str(settings.format_version)}
    spec = partition_spec(wanted.schema, partition) if partition else None
    body = create_table_body(table[-1], wanted.schema, spec, {**properties, **settings.properties})
    return [create_table(table, body)]


# -- the state of a table

# The parts of a table's metadata that a batch depends on.
_SHAPE = ("table-uuid", "format-version", "schemas", "current-schema-id", "last-column-id")


@dataclass(frozen=True, slots=True)
class TableState:
    landed: LandedTable
    watermarks: dict[str, str]  # the newest position of each source in the table
    mirror: Metadata | None
    changes: Metadata | None
    is_empty: bool  # no rows were ever in the mirror
    has_namespace: bool
    has_rejects: bool
    resync: Resync | None = None  # the resync that this batch ends


def table_states(
    context: StagingContext, batch_range: BatchRange, expected: Expected | None = None
) -> dict[TableName, TableState]:
    """Return the state of each table of the batch, or the state expected after the previous batch."""
    landed = context.tables.some(batch_range.warehouse, batch_range.ranges.keys())
    marks: dict[TableName, dict[str, str]] = {}
    for mark in context.tables.watermarks(batch_range.warehouse):
        marks.setdefault(mark.table, {})[mark.source] = mark.position
    catalog = context.catalog
    state = CurrentState(catalog.database, catalog.entries, batch_range.warehouse, catalog.documents)
    found = {table: table_state(state, landed[table], marks.get(table, {})) for table in batch_range.ranges}
    for table, resync in context.tables.resyncs(batch_range.warehouse).items():
        if table in found:
            found[table] = replace(found[table], resync=ended(resync, batch_range.ranges[table][1]))
    if expected is None:
        return found
    return {table: _expected_state(one, table, expected) for table, one in found.items()}


def table_state(state: WarehouseState, landed: LandedTable, marks: dict[str, str]) -> TableState:
    """Return the state of one table. `marks` are its newest positions, by source."""
    *levels, name = landed.table or UNROUTED  # rejects that name no table
    namespace = Namespace(tuple(levels)).key
    mirror = _metadata(state, namespace, name)
    return TableState(
        landed,
        marks,
        mirror,
        _metadata(state, namespace, name + CHANGES_SUFFIX),
        is_empty=mirror is None or mirror.get("current-snapshot-id") in (None, -1),
        has_namespace=state.entry(namespace, "") is not None,
        has_rejects=_is_table(state, namespace, name + REJECTS_SUFFIX),
    )


def metadata_of(context: StagingContext, warehouse: str, table: TableName) -> Metadata | None:
    """Return the current metadata document of a table; None if there is no table of that name."""
    catalog = context.catalog
    state = CurrentState(catalog.database, catalog.entries, warehouse, catalog.documents)
    return _metadata(state, Namespace(table[:-1]).key, table[-1])


def _metadata(state: WarehouseState, namespace: str, name: str) -> Metadata | None:
    entry = state.load(namespace, name)
    if entry is None or entry.kind != "table":
        return None
    document: Metadata = orjson.loads(entry.document or b"{}")
    return document


def _is_table(state: WarehouseState, namespace: str, name: str) -> bool:
    return getattr(state.entry(namespace, name), "kind", None) == "table"


def _expected_state(table_state: TableState, table: TableName, expected: Expected) -> TableState:
    """Return the state after the previous batch, which changes rows but no columns."""
    step = expected.steps[table]
    landed = replace(
        table_state.landed, landed_id=step.to_id, commit_us=expected.commit_us, load_key=step.load_key
    )
    marks = dict(table_state.watermarks)
    for source, (position, _) in step.watermarks.items():
        marks[source] = max(position, marks.get(source, ""))
    return replace(table_state, landed=landed, watermarks=marks, is_empty=False)


def digest(found: Mapping[TableName, TableState]) -> str:
    """Return a digest that is equal if staging would produce the same files."""
    # Not orjson: the name of a source may contain a surrogate.
    text = json.dumps([_digest_input(table, found[table]) for table in sorted(found)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _digest_input(table: TableName, table_state: TableState) -> list[Any]:
    landed = table_state.landed
    return [
        table,
        [landed.landed_id, landed.commit_us, landed.load_key, asdict(landed.settings)],
        table_state.watermarks,
        [landed.known_key, table_state.is_empty, table_state.has_namespace, table_state.has_rejects],
        [_shape(table_state.mirror), _shape(table_state.changes)],
        why_paused(landed, table_state.mirror, table_state.changes),
        None if table_state.resync is None else table_state.resync.generation,
    ]


def _shape(metadata: Metadata | None) -> Metadata | None:
    return None if metadata is None else {name: metadata.get(name) for name in _SHAPE}
