"""Read the changes of a table from `<table>__changes`: of one row, and between two moments."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import orjson
import pyarrow as pa
from pyiceberg.expressions import EqualTo, Reference
from pyiceberg.expressions.literals import literal
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, ancestors_of

from catalog.api.pagination import Page
from catalog.errors import Conflict, Invalid, NoSuchTable
from ingest.store.tables import CHANGES_SUFFIX
from query.tables.access import TableAccess
from query.tables.keys import key_filter, key_values, require_key, settings_of
from query.tables.moments import TableMoment, commits_of_snapshots, moment_number, table_at
from query.tables.reading import json_rows, planned, read_within, scan_at

VERSIONS_MAX = 100_000  # of one row
SNAPSHOT_ROWS_MAX = 1_000_000  # of one publish


def list_changes(access: TableAccess, page: Page, from_: str | None, to: str | None) -> dict[str, Any]:
    start = moment_number(access, from_, "from") if from_ is not None else 0
    end = moment_number(access, to, "to")
    if start > end:
        raise Invalid(f"from (number {start}) is later than to (number {end})")
    changes = _changes_table(access)
    after = page.after(0, 0)
    names = settings_of(access).names
    found: list[tuple[tuple[int, int], dict[str, Any]]] = []
    commits = commits_of_snapshots(changes)
    for moment, order, snapshot in _appends(changes, start, end):
        if order < after[0]:
            continue
        number = commits.get(snapshot.snapshot_id, {}).get("number")
        first = after[1] if order == after[0] else 0
        rows = _published_rows(moment, snapshot, names).slice(first, page.rows_max - len(found))
        versions = enumerate(change_versions(rows, names), first + 1)
        found += [((order, row), version | {"number": number}) for row, version in versions]
        if len(found) >= page.rows_max:
            break
    shown, token = page.cut(found, lambda entry: entry[0])
    answer = {"from_number": start, "to_number": end, "changes": [entry[1] for entry in shown]}
    return answer | {"next-page-token": token}


def row_history(access: TableAccess, key: list[str], page: Page) -> dict[str, Any]:
    changes = _changes_table(access)
    mirror = access.current() if access.exists_now() else changes.current()
    schema = changes.current().schema()
    values = key_values(require_key(access, mirror.schema()), key)
    names = settings_of(access).names
    is_truncate = EqualTo(term=Reference(names["operation"]), value=literal("truncate"))
    wanted = key_filter(schema, values) | is_truncate
    scan = scan_at(table_at(changes, None), wanted)
    found = read_within(scan, planned(scan), VERSIONS_MAX, "this row has too many versions; use /query")
    versions = change_versions(found.sort_by(names["commit-timestamp"]), names)
    if all(version["operation"] == "truncate" for version in versions):
        versions = []  # no change of this row: it never existed
    (after,) = page.after(0)
    numbered = list(enumerate(versions, 1))[after:]
    shown, token = page.cut(numbered, lambda entry: (entry[0],))
    return {"key": values, "versions": [entry[1] for entry in shown], "next-page-token": token}


def _changes_table(access: TableAccess) -> TableAccess:
    changes = access.beside(CHANGES_SUFFIX)
    if changes.exists_now():
        return changes
    if not access.exists_now():
        raise NoSuchTable(f"Table does not exist: {access.identifier}")
    raise Conflict(
        f"{access.identifier} has no table {changes.identifier.name}: only changes that come through "
        "/cdc are kept row by row. Use diff to compare two moments"
    )


def _appends(changes: TableAccess, start: int, end: int) -> Iterator[tuple[TableMoment, int, Snapshot]]:
    """Return the snapshots that added changes after `start` and up to `end`, oldest first, each with its
    order.
    """
    if not changes.exists_at(end):
        return
    moment = table_at(changes, str(end))
    since = None
    if changes.exists_at(start):
        former = changes.at(start)
        current = former.current_snapshot()
        if former.metadata.table_uuid == moment.table.metadata.table_uuid and current is not None:
            since = current.snapshot_id
    found = []
    for snapshot in ancestors_of(moment.snapshot, moment.table.metadata):
        if snapshot.snapshot_id == since:
            break
        found.append(snapshot)
    else:
        if since is not None or (found and found[-1].parent_snapshot_id is not None):
            raise Conflict(
                f"{changes.identifier} no longer has every snapshot after number {start}: they were "
                "expired or rolled back. Begin with a later moment"
            )
    for index, snapshot in enumerate(reversed(found), 1):
        if snapshot.summary is not None and snapshot.summary.operation == Operation.APPEND:
            yield moment, snapshot.sequence_number or index, snapshot


def _published_rows(moment: TableMoment, snapshot: Snapshot, names: Mapping[str, str]) -> pa.Table:
    table = _as_written(moment.table, snapshot)
    scan = table.incremental_append_scan().to_snapshot_id_inclusive(snapshot.snapshot_id)
    if snapshot.parent_snapshot_id is not None:
        scan = scan.from_snapshot_id_exclusive(snapshot.parent_snapshot_id)
    advice = "one publish has more changes than this; use /query"
    found = read_within(scan, planned(scan), SNAPSHOT_ROWS_MAX, advice)
    return found.sort_by([(names["commit-timestamp"], "ascending"), (names["position"], "ascending")])


def _as_written(table: Table, snapshot: Snapshot) -> Table:
    """Return the table with the schema of a snapshot, if columns were converted since: a converted column has
    another field id, so values of older files would be null.
    """
    now = {field.name: field.field_id for field in table.schema().fields}
    known = table.metadata.schema_by_id(snapshot.schema_id) if snapshot.schema_id is not None else None
    if known is None or all(now.get(field.name, field.field_id) == field.field_id for field in known.fields):
        return table
    found = copy.copy(table)
    found.metadata = table.metadata.model_copy(update={"current_schema_id": snapshot.schema_id})
    return found


def change_versions(table: pa.Table, names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return rows of a changes table as changes."""
    metadata_columns = set(names.values())
    versions = []
    for row in json_rows(table):
        values = {column: value for column, value in row.items() if column not in metadata_columns}
        version = {
            field.replace("-", "_"): row.get(column)
            for field, column in names.items()
            if field not in ("order", "absent")  # only rebuilds use them
        }
        is_removal = version["operation"] in ("delete", "truncate")
        before = _parsed(version["before"])
        if before is None and version["operation"] == "delete":
            before = values
        version["before"], version["after"] = before, None if is_removal else values
        versions.append(version)
    return versions


def _parsed(text: Any) -> dict[str, Any] | None:
    """Parse `_before`, which is JSON text, because a source may send columns that the table does not have."""
    if not isinstance(text, str):
        return None
    found = orjson.loads(text)
    return found if isinstance(found, dict) else {"value": found}
