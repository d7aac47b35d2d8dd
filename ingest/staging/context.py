"""What staging works on: the batch range, the context, the state of each table, the staged batch.

These are plain data and light to import: the server's own process does not import Arrow. For a batch that is
staged while the one before it is being landed, the state of a table is the expected one; `digest` shows later
whether that was right.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from catalog.errors import CatalogError
from catalog.names import Namespace
from catalog.services.catalog import Catalog, CurrentState
from ingest.change import TableName
from ingest.journal.journal import Journal
from ingest.settings import StagedOptions
from ingest.store.table_settings import CHANGES_SUFFIX, REJECTS_SUFFIX
from ingest.store.tables import LandedTable, LandingTables, TableAdvance

UNROUTED: TableName = ("default", "unrouted")  # where events are kept that name no table


def staged_folder(root: str) -> str:
    """Where the files of jobs are, below the root of their warehouse; each job has a folder with its id."""
    return f"{root.rstrip('/')}/_calve/staged"


@dataclass(frozen=True, slots=True)
class StagingContext:
    """What staging stands on: the catalog for schemas and files, the journal, the landing rows."""

    catalog: Catalog
    journal: Journal
    tables: LandingTables
    options: StagedOptions = field(default_factory=StagedOptions)


@dataclass(frozen=True, slots=True)
class BatchRange:
    """Which part of the journal goes into a job: for each table, after which id and up to which."""

    job_id: str
    warehouse: str
    ranges: Mapping[TableName, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Expected:
    """What the batch before will leave behind once it is published."""

    commit_us: int
    steps: Mapping[TableName, TableAdvance]


class CannotStage(CatalogError):
    """One table of a cut keeps it from being staged; the others could go without it."""

    def __init__(self, message: str, table: TableName = ()) -> None:
        super().__init__(message)
        self.table = table

    def __reduce__(self) -> tuple[type[CannotStage], tuple[str, TableName]]:
        return CannotStage, (self.message, self.table)  # it crosses from one process to another


@dataclass(frozen=True, slots=True)
class StagedBatch:
    tables: list[dict[str, Any]]  # as in the job's description
    steps: list[TableAdvance]
    commit_us: int
    files: list[str]
    state_digest: str = ""  # of the table states that it was staged for


# -- the state of a table

Metadata = dict[str, Any]
_ACCEPT = 'or set {"mirror-changed": "accept"} with PUT .../ingest to go on with it as it is'
_AFTER_DROP = f"undrop it, or drop its changes table too to begin anew, {_ACCEPT}"
_AFTER_ROLLBACK = f"set it to its newest snapshot again, {_ACCEPT}"
# The parts of a table's metadata that a batch is made for.
_SHAPE = ("table-uuid", "format-version", "schemas", "current-schema-id", "last-column-id")


@dataclass(frozen=True, slots=True)
class TableState:
    landed: LandedTable
    watermarks: dict[str, str]  # the newest position of each source that the table shows
    mirror: Metadata | None
    changes: Metadata | None
    is_empty: bool  # no rows were ever in the mirror
    has_namespace: bool
    has_rejects: bool


def table_states(
    context: StagingContext, batch_range: BatchRange, expected: Expected | None = None
) -> dict[TableName, TableState]:
    """For each table of the cut: as it is, or as the batch before it is expected to leave it."""
    landed = context.tables.some(batch_range.warehouse, batch_range.ranges.keys())
    marks: dict[TableName, dict[str, str]] = {}
    for mark in context.tables.watermarks(batch_range.warehouse):
        marks.setdefault(mark.table, {})[mark.source] = mark.position
    catalog = context.catalog
    state = CurrentState(catalog.database, catalog.entries, batch_range.warehouse, catalog.documents)
    found = {table: _table_state(state, landed[table], marks.get(table, {})) for table in batch_range.ranges}
    if expected is None:
        return found
    return {table: _expected_state(table_state, table, expected) for table, table_state in found.items()}


def _table_state(state: CurrentState, landed: LandedTable, marks: dict[str, str]) -> TableState:
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


def why_paused(state: TableState) -> str | None:
    """Why nothing may be landed into a mirror: it is not the one that the last batch left. None if it is.

    Later snapshots of others do not count, so compaction goes on. An expired snapshot cannot be found.
    """
    known, mirror = state.landed.mirror_snapshot_id, state.mirror
    settings = state.landed.settings
    if known is None or settings.mirror_changed == "accept" or settings.mode == "changes":
        return None
    if mirror is None:
        # Without its changes table, too, the table begins anew.
        return None if state.changes is None else f"the mirror was dropped: {_AFTER_DROP}"
    current = mirror.get("current-snapshot-id")
    if current in (None, -1):
        return f"the mirror was emptied or made anew: {_AFTER_ROLLBACK}"
    parents = {
        snapshot["snapshot-id"]: snapshot.get("parent-snapshot-id")
        for snapshot in mirror.get("snapshots") or ()
    }
    if known not in parents:
        return None
    while current is not None and current != known:
        current = parents.get(current)
    return None if current == known else f"the mirror was rolled back: {_AFTER_ROLLBACK}"


def metadata_of(context: StagingContext, warehouse: str, table: TableName) -> Metadata | None:
    """The document of a table as it is now; None if there is no table of that name."""
    catalog = context.catalog
    state = CurrentState(catalog.database, catalog.entries, warehouse, catalog.documents)
    return _metadata(state, Namespace(table[:-1]).key, table[-1])


def _metadata(state: CurrentState, namespace: str, name: str) -> Metadata | None:
    entry = state.load(namespace, name)
    if entry is None or entry.kind != "table":
        return None
    document: Metadata = orjson.loads(entry.document or b"{}")
    return document


def _is_table(state: CurrentState, namespace: str, name: str) -> bool:
    entry = state.entry(namespace, name)
    return entry is not None and entry.kind == "table"


def _expected_state(table_state: TableState, table: TableName, expected: Expected) -> TableState:
    """As the batch before will leave it: it changes rows, and no columns."""
    step = expected.steps[table]
    landed = replace(
        table_state.landed, landed_id=step.to_id, commit_us=expected.commit_us, load_key=step.load_key
    )
    marks = dict(table_state.watermarks)
    for source, (position, _) in step.watermarks.items():
        marks[source] = max(position, marks.get(source, ""))
    return replace(table_state, landed=landed, watermarks=marks, is_empty=False)


def digest(found: Mapping[TableName, TableState]) -> str:
    """The same if staging would give the same."""
    # Not orjson: the name of a source may be half of a surrogate pair.
    text = json.dumps([_digest_input(table, found[table]) for table in sorted(found)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _digest_input(table: TableName, table_state: TableState) -> list[Any]:
    landed = table_state.landed
    return [
        table,
        [landed.landed_id, landed.commit_us, landed.load_key, landed.settings.as_json()],
        table_state.watermarks,
        [
            _shape(table_state.mirror),
            _shape(table_state.changes),
            table_state.is_empty,
            table_state.has_namespace,
            table_state.has_rejects,
            why_paused(table_state),
        ],
    ]


def _shape(metadata: Metadata | None) -> Metadata | None:
    return None if metadata is None else {name: metadata.get(name) for name in _SHAPE}
