"""Return the row of a key including acknowledged changes that are not yet published, without waiting for the
publish.

The changes are staged in memory and folded by the code of landing. Where that is not possible (new columns,
late changes, very many changes, keys of other types), the caller waits for the publish.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa
from pyiceberg.schema import Schema

from catalog.errors import Invalid, NoSuchTable
from catalog.moments import AtTime
from catalog.names import decode_segment
from ingest.change import TableName
from ingest.identity import current_schema, key_of_table
from ingest.journal.journal import Journal
from ingest.staging.context import BatchRange, CannotPrestage, StagingContext
from ingest.staging.pending_changes import PendingChanges, TooManyChanges
from ingest.staging.targets import TableState, table_states
from ingest.staging.unpublished import stage_in_memory
from ingest.store.resyncs import Resyncs
from ingest.store.tables import LandedTable, LandingTables
from query.tables.access import TableAccess
from query.tables.keys import NO_KEY, key_filter, key_values, typed
from query.tables.moments import table_at
from query.tables.reading import json_columns, json_rows, planned, read, require_columns, scan_at

TRIES_MAX = 5
TABLES_MAX = 256
KEY_TYPES = ("int", "long", "string")

Bases = Callable[[pa.Table, list[str]], pa.Table]
Fallback = Literal["published", "wait"]  # read the published table now, or wait for the next publish


@dataclass(frozen=True, slots=True)
class FoldedRows:
    """The last row of each key; whether it is deleted; whether all other rows of the mirror are."""

    rows: pa.Table
    is_deleted: list[bool]
    is_truncated: bool


# Arguments: staged rows, the description of their table as in a job, and a function for old rows of the
# mirror.
Fold = Callable[[pa.Table, dict[str, Any], Bases], FoldedRows]


@dataclass(frozen=True, slots=True)
class _Table:
    """A table at a number of its warehouse."""

    number: int
    state: TableState
    schema: Schema
    key_types: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Row:
    """The requested row: table, key and columns."""

    access: TableAccess
    landed: LandedTable
    table: _Table
    key: Mapping[str, Any]
    columns: tuple[str, ...]


class HotRows:
    """Reads rows with unpublished changes. One for each server process."""

    def __init__(self, journal: Journal, tables: LandingTables, fold: Fold) -> None:
        self._journal = journal
        self._tables = tables
        self._fold = fold
        self._pending = PendingChanges(journal)
        self._known: dict[tuple[str, TableName], _Table] = {}

    def load_row(self, access: TableAccess, key: str, columns: str | None) -> dict[str, Any] | Fallback:
        """Return the row as of a moment between the request and the response, or where to read it.

        If a publish happens meanwhile, two states would be mixed, so the read is repeated.
        """
        warehouse, name = access.warehouse.name, access.identifier.parts
        for _ in range(TRIES_MAX):
            landed = self._tables.one(warehouse, name)
            requested = self._row_request(access, landed, key, columns)
            try:
                found = self._load(requested)
            except (TooManyChanges, CannotPrestage):
                found = "wait"
            if self._tables.one(warehouse, name).landed_id == landed.landed_id:
                return found
            self._pending.forget(warehouse, name)
        return "wait"

    def _row_request(self, access: TableAccess, landed: LandedTable, key: str, columns: str | None) -> _Row:
        table = self._table(access, landed)
        schema = table.schema
        if not table.key_types:
            raise Invalid(NO_KEY.format(table=access.identifier))
        values = key_values(tuple(table.key_types), [decode_segment(key)])
        typed_key = {name: typed(schema.find_type(name), value, name).value for name, value in values.items()}
        chosen = tuple(name.strip() for name in (columns or "").split(",") if name.strip())
        require_columns(schema, chosen)
        return _Row(access, landed, table, typed_key, chosen or tuple(schema.column_names))

    def _table(self, access: TableAccess, landed: LandedTable) -> _Table:
        """Return the table. It is read again only after a commit in the warehouse or a change of its
        settings.
        """
        warehouse = access.warehouse.name
        where = (warehouse, landed.table)
        number = (access.catalog.entries.number(warehouse) or (0, 0))[0]
        known = self._known.get(where)
        if known is not None and known.number == number and known.state.landed == landed:
            return known
        batch_range = BatchRange("", warehouse, {landed.table: (landed.landed_id, landed.landed_id)})
        state = replace(table_states(self._context(access), batch_range)[landed.table], landed=landed)
        schema = current_schema(state.mirror)
        if schema is None:
            raise NoSuchTable(f"Table does not exist: {access.identifier}")
        found = Schema.model_validate(schema)
        key = key_of_table(landed.settings.key, schema, ())
        types = {name: str(found.find_type(name)) for name in key if name in found.column_names}
        known = _Table(number, state, found, types)
        if len(self._known) >= TABLES_MAX:
            self._known.clear()
        self._known[where] = known
        return known

    def _load(self, requested: _Row) -> dict[str, Any] | Fallback:
        warehouse, landed, types = (
            requested.access.warehouse.name,
            requested.landed,
            requested.table.key_types,
        )
        is_mirror = landed.settings.mode in ("mirror+changes", "mirror")
        if not is_mirror or any(type_ not in KEY_TYPES for type_ in types.values()):
            return "wait"
        if landed.table in Resyncs(requested.access.catalog.database).running(warehouse):
            return "wait"
        head, now_ms = self._journal.head(warehouse), time.time_ns() // 1_000_000
        after = {landed.table: landed.landed_id}
        # An incomplete source transaction is not shown.
        span = (landed.landed_id, self._journal.border(warehouse, [landed.table], after, head, now_ms))
        if span[1] > head:
            return "wait"
        if span[1] <= span[0]:
            return "published"
        texts = tuple(str(value) for value in requested.key.values())
        arrived = self._pending.of_row(warehouse, landed.table, types, texts, span)
        if not arrived:
            return "published"
        context = self._context(requested.access)
        described, staged = stage_in_memory(context, requested.table.state, warehouse, span, arrived)
        if staged is None:
            return "published"
        if described["late"] or described["mirror"] is None or described["append-only"]:
            return "wait"
        folded = self._fold(staged, described, lambda wanted, columns: _old_rows(requested, wanted, columns))
        return _answer(requested, folded, f"{warehouse}:{span[1]}")

    def _context(self, access: TableAccess) -> StagingContext:
        return StagingContext(access.catalog, self._journal, self._tables)


def _old_rows(requested: _Row, wanted: pa.Table, columns: list[str]) -> pa.Table:
    """Return rows of the mirror that missing values come from, with the number that each has in `wanted`."""
    moment = table_at(requested.access, None)
    number = wanted.column_names[-1]
    found = []
    for row in wanted.to_pylist():
        key = {name: value for name, value in row.items() if name != number}
        scan = scan_at(moment, key_filter(requested.table.schema, key), columns)
        old = read(scan, planned(scan), 1)
        found.append(old.append_column(number, pa.array([row[number]] * old.num_rows, pa.int64())))
    return pa.concat_tables(found)


def _answer(requested: _Row, folded: FoldedRows, token: str) -> dict[str, Any] | Fallback:
    """Return the response for the row of the key. The folded rows may include other keys."""
    keys = zip(*(folded.rows.column(name).to_pylist() for name in requested.key), strict=True)
    index = next((at for at, key in enumerate(keys) if key == tuple(requested.key.values())), None)
    if index is None and not folded.is_truncated:
        return "published"
    row = None
    if index is not None and not folded.is_deleted[index]:
        names = [name for name in requested.columns if name in folded.rows.column_names]
        [values] = json_rows(folded.rows.select(names).slice(index, 1))
        row = {name: values.get(name) for name in requested.columns}
    landed, now_ms = requested.landed, time.time_ns() // 1_000_000
    moment = {"number": landed.number, "time": str(AtTime(now_ms)), "snapshot_id": landed.mirror_snapshot_id}
    columns = [
        column for column in json_columns(requested.table.schema) if column["name"] in requested.columns
    ]
    return {"as_of": moment, "columns": columns, "row": row, "token": token}
