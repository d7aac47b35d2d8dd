"""Return the row of a key including acknowledged changes that are not yet published, without waiting for the
publish.

The changes are staged in memory and folded by the code of landing. Where that is not possible (new columns,
late changes, very many changes, keys of other types), the caller waits for the publish.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
from pyiceberg.schema import Schema

from catalog.errors import Invalid, NoSuchTable
from catalog.moments import AtTime
from catalog.names import decode_segment
from ingest.change import TableName
from ingest.staging.pending_changes import TooManyChanges
from ingest.staging.pending_fold import PendingFold, PendingTable
from ingest.staging.pending_rows import CannotFold, FoldedRows
from ingest.store.tables import LandedTable
from query.tables.access import TableAccess
from query.tables.keys import NO_KEY, key_filter, key_values, typed
from query.tables.moments import table_at
from query.tables.reading import json_columns, json_rows, planned, read, require_columns, scan_at

TRIES_MAX = 5
TABLES_MAX = 256
KEY_TYPES = ("int", "long", "string")

Fallback = Literal["published", "wait"]  # read the published table now, or wait for the next publish


@dataclass(frozen=True, slots=True)
class _Row:
    """The requested row: table, key and columns."""

    access: TableAccess
    landed: LandedTable
    table: PendingTable
    schema: Schema
    key: Mapping[str, Any]
    columns: tuple[str, ...]


class HotRows:
    """Reads rows with unpublished changes. One for each server process."""

    def __init__(self, pending: PendingFold) -> None:
        self._pending = pending
        self._schemas: dict[tuple[str, TableName], tuple[PendingTable, Schema]] = {}

    def load_row(self, access: TableAccess, key: str, columns: str | None) -> dict[str, Any] | Fallback:
        """Return the row as of a moment between the request and the response, or where to read it.

        If a publish happens meanwhile, two states would be mixed, so the read is repeated.
        """
        warehouse, name = access.warehouse.name, access.identifier.parts
        for _ in range(TRIES_MAX):
            landed = self._pending.landed(warehouse, {name})
            requested = self._row_request(access, landed[name], key, columns)
            found: dict[str, Any] | Fallback
            try:
                found = self._load(requested)
            except (TooManyChanges, CannotFold):
                found = "wait"
            if self._pending.is_unchanged(warehouse, landed):
                return found
        return "wait"

    def _row_request(self, access: TableAccess, landed: LandedTable, key: str, columns: str | None) -> _Row:
        table, schema = self._table(access, landed)
        if not table.key_types:
            raise Invalid(NO_KEY.format(table=access.identifier))
        values = key_values(tuple(table.key_types), [decode_segment(key)])
        typed_key = {name: typed(schema.find_type(name), value, name).value for name, value in values.items()}
        chosen = tuple(name.strip() for name in (columns or "").split(",") if name.strip())
        require_columns(schema, chosen)
        return _Row(access, landed, table, schema, typed_key, chosen or tuple(schema.column_names))

    def _table(self, access: TableAccess, landed: LandedTable) -> tuple[PendingTable, Schema]:
        warehouse = access.warehouse.name
        number = (access.catalog.entries.number(warehouse) or (0, 0))[0]
        found = self._pending.table(access.catalog, warehouse, landed, number)
        if found is None:
            raise NoSuchTable(f"Table does not exist: {access.identifier}")
        known = self._schemas.get((warehouse, landed.table))
        if known is None or known[0] is not found:
            if len(self._schemas) >= TABLES_MAX:
                self._schemas.clear()
            known = self._schemas[warehouse, landed.table] = found, Schema.model_validate(found.schema)
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
        span = (landed.landed_id, self._pending.cut(warehouse, {landed.table: landed}))
        if span[1] <= span[0]:
            return "published"
        texts = tuple(str(value) for value in requested.key.values())
        arrived = self._pending.changes.of_row(warehouse, landed.table, types, texts, span)
        if not arrived:
            return "published"
        described, staged = self._pending.staged(
            requested.access.catalog, warehouse, requested.table, span, arrived
        )
        if staged is None:
            return "published"
        if described["append-only"]:
            return "wait"
        folded = self._pending.folded(
            staged, described, lambda wanted, columns: _old_rows(requested, wanted, columns)
        )
        return _answer(requested, folded, f"{warehouse}:{span[1]}")


def _old_rows(requested: _Row, wanted: pa.Table, columns: list[str]) -> pa.Table:
    """Return rows of the mirror that missing values come from, with the number that each has in `wanted`."""
    moment = table_at(requested.access, None)
    number = wanted.column_names[-1]
    found = []
    for row in wanted.to_pylist():
        key = {name: value for name, value in row.items() if name != number}
        scan = scan_at(moment, key_filter(requested.schema, key), columns)
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
    columns = [column for column in json_columns(requested.schema) if column["name"] in requested.columns]
    return {"as_of": moment, "columns": columns, "row": row, "token": token}
