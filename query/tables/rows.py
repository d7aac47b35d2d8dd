"""Rows without SQL: one by its key, or those of a predicate and a range of dates, as of any moment."""

from __future__ import annotations

from typing import Annotated, Any

import pyarrow as pa
from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, Field
from pyiceberg.schema import Schema

from catalog.api.pagination import Paged, PageDep
from catalog.api.responses import json_response
from catalog.errors import TooLarge
from catalog.names import decode_segment
from query.tables.dependencies import TABLE, AsOf, ReaderTable
from query.tables.keys import key_filter, key_values, require_key
from query.tables.moments import SNAPSHOT_PREFIX, table_at
from query.tables.predicates import EXAMPLE, date_range, parsed_where
from query.tables.reading import (
    json_columns,
    json_rows,
    planned,
    read,
    require_columns,
    scan_at,
    schema_at,
)
from query.tables.snapshots import MomentAnswer

router = APIRouter()

LIMIT_MAX = 10_000
LIMIT_DEFAULT = 1000
BYTES_MAX = 64 * 1024 * 1024


class ColumnAnswer(BaseModel):
    name: str
    type: str


class RowAnswer(BaseModel):
    as_of: MomentAnswer
    columns: list[ColumnAnswer]
    row: dict[str, Any] | None = Field(description="null: the table has no such row at this moment")


class RowList(Paged):
    as_of: MomentAnswer
    columns: list[ColumnAnswer]
    rows: list[dict[str, Any]]
    truncated: bool = Field(description="There are more rows: `next-page-token` leads to them")
    files: int = Field(description="How many data files are left after pruning")


Columns = Annotated[str | None, Query(description="Names of columns with commas between; default: all")]
Where = Annotated[str | None, Query(description=f"A predicate, such as `{EXAMPLE}`")]


@router.get(TABLE + "/rows/{key}", operation_id="loadRow", response_model=RowAnswer)
def load_row(
    access: ReaderTable,
    key: Annotated[str, Path(description="`17`, or `region=eu,id=17`, or a JSON object, percent-encoded")],
    columns: Columns = None,
    as_of: AsOf = None,
) -> Response:
    """The row of a key."""
    moment = table_at(access, as_of)
    schema = schema_at(moment)
    values = key_values(require_key(access, schema), [decode_segment(key)])
    scan = scan_at(moment, key_filter(schema, values), _selected(columns, schema))
    found = read(scan, planned(scan), 1)
    rows = json_rows(_bounded(found))
    return json_response(
        {
            "as_of": moment.as_json(),
            "columns": json_columns(scan.projection()),
            "row": rows[0] if rows else None,
        }
    )


@router.get(TABLE + "/rows", operation_id="listRows", response_model=RowList)
def list_rows(  # noqa: PLR0913, PLR0917 - each is a parameter of the URL
    access: ReaderTable,
    page: PageDep,
    where: Where = None,
    columns: Columns = None,
    as_of: AsOf = None,
    from_date: Annotated[str | None, Query(description="From this date or time on")] = None,
    to_date: Annotated[
        str | None, Query(description="Up to this date (the whole day) or time, included")
    ] = None,
    date_column: Annotated[
        str | None, Query(description="The column of the dates; default: the only one, or the partition's")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX, description="Most rows of a page")] = LIMIT_DEFAULT,
) -> Response:
    """Rows that a predicate and a range of dates select, in no certain order. Files that cannot have such
    rows are not read. Later pages are of the same snapshot as the first.
    """
    page.size = limit
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
    return json_response(
        {
            "as_of": moment.as_json(),
            "columns": json_columns(scan.projection()),
            "rows": [row for _, row in shown],
            "truncated": token is not None,
            "files": len(tasks),
            "next-page-token": token,
        }
    )


def _selected(columns: str | None, schema: Schema) -> tuple[str, ...]:
    if columns is None:
        return ("*",)
    names = tuple(name.strip() for name in columns.split(",") if name.strip())
    require_columns(schema, names)
    return names or ("*",)


def _bounded(table: pa.Table) -> pa.Table:
    if table.nbytes > BYTES_MAX:
        raise TooLarge(f"The rows have more than {BYTES_MAX} bytes: ask for fewer rows or columns")
    return table
