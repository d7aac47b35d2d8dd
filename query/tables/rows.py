"""Read rows without SQL: one by its key, or those that match a predicate and a range of dates, as of any
moment.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema

from catalog.api.pagination import Page
from catalog.errors import TooLarge
from catalog.names import decode_segment
from query.tables.access import TableAccess
from query.tables.keys import key_filter, key_values, require_key
from query.tables.moments import SNAPSHOT_PREFIX, table_at
from query.tables.predicates import date_range, parsed_where
from query.tables.reading import (
    json_columns,
    json_rows,
    planned,
    read,
    require_columns,
    scan_at,
    schema_at,
)

BYTES_MAX = 64 * 1024 * 1024


def load_row(access: TableAccess, key: str, columns: str | None, as_of: str | None) -> dict[str, Any]:
    moment = table_at(access, as_of)
    schema = schema_at(moment)
    values = key_values(require_key(access, schema), [decode_segment(key)])
    scan = scan_at(moment, key_filter(schema, values), _selected(columns, schema))
    found = read(scan, planned(scan), 1)
    rows = json_rows(_bounded(found))
    return {
        "as_of": moment.as_json(),
        "columns": json_columns(scan.projection()),
        "row": rows[0] if rows else None,
    }


def list_rows(
    access: TableAccess,
    page: Page,
    where: str | None,
    columns: str | None,
    as_of: str | None,
    from_date: str | None,
    to_date: str | None,
    date_column: str | None,
) -> dict[str, Any]:
    pinned, first_file, first_row = page.after("", 0, 0)
    moment = table_at(access, f"{SNAPSHOT_PREFIX}{pinned}" if pinned else as_of)
    schema = schema_at(moment)
    dates = date_range(schema, moment.table.spec(), date_column, from_date, to_date)
    scan = scan_at(moment, parsed_where(where, schema) & dates, _selected(columns, schema))
    tasks = planned(scan)
    rows: list[tuple[tuple[str, int, int], dict[str, Any]]] = []
    for index, task in enumerate(tasks[first_file:], first_file):
        skipped = first_row if index == first_file else 0
        found = read(scan, [task], skipped + page.rows_max - len(rows)).slice(skipped)
        numbered = enumerate(json_rows(_bounded(found)), skipped + 1)
        rows += [((str(moment.snapshot_id), index, number), row) for number, row in numbered]
        if len(rows) == page.rows_max:
            break
    shown, token = page.cut(rows, lambda entry: entry[0])
    return {
        "as_of": moment.as_json(),
        "columns": json_columns(scan.projection()),
        "rows": [row for _, row in shown],
        "truncated": token is not None,
        "files": len(tasks),
        "next-page-token": token,
    }


def _selected(columns: str | None, schema: Schema) -> tuple[str, ...]:
    if columns is None:
        return ("*",)
    names = tuple(name.strip() for name in columns.split(",") if name.strip())
    require_columns(schema, names)
    return names or ("*",)


def _bounded(table: pa.Table) -> pa.Table:
    if table.nbytes > BYTES_MAX:
        raise TooLarge(f"The rows have more than {BYTES_MAX} bytes: request fewer rows or columns")
    return table
