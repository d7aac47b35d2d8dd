"""Routes for rows without SQL: one by its key, or those that match a predicate and a range of dates."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, Field

from catalog.api.pagination import Paged, PageDep
from catalog.api.responses import json_response
from catalog.errors import Invalid
from query.landing import Freshness
from query.tables.access import TableAccess
from query.tables.api.snapshots import MomentAnswer
from query.tables.dependencies import NOT_VISIBLE, PREDICATE_EXAMPLE, TABLE, TOO_LARGE, AsOf, ReaderTable

router = APIRouter()

LIMIT_MAX = 10_000
LIMIT_DEFAULT = 1000
FRESH_S = 10.0
FRESH_S_MAX = 55.0
TOO_LATE: dict[int | str, dict[str, Any]] = {
    504: {"description": "Acknowledged changes of the table did not become visible in time."}
}


class ColumnAnswer(BaseModel):
    name: str
    type: str


class RowAnswer(BaseModel):
    as_of: MomentAnswer
    columns: list[ColumnAnswer]
    row: dict[str, Any] | None = Field(description="null: the table has no such row at this moment")
    token: str | None = Field(
        None, description="The row has changes up to this token which are not in the snapshot"
    )


class RowList(Paged):
    as_of: MomentAnswer
    columns: list[ColumnAnswer]
    rows: list[dict[str, Any]]
    truncated: bool = Field(description="There are more rows: `next-page-token` leads to them")
    files: int = Field(description="How many data files are left after pruning")


Columns = Annotated[str | None, Query(description="Names of columns with commas between; default: all")]


Where = Annotated[str | None, Query(description=f"A predicate, such as `{PREDICATE_EXAMPLE}`")]


Consistency = Annotated[
    Literal["committed", "fresh"],
    Query(
        description="fresh: with all changes that were acknowledged before the request, also those that are "
        "not published yet"
    ),
]
TimeoutS = Annotated[
    float,
    Query(ge=0, le=FRESH_S_MAX, description="If the row has to wait for a publish: no longer than this"),
]


@router.get(
    TABLE + "/rows/{key}",
    operation_id="loadRow",
    response_model=RowAnswer,
    responses=NOT_VISIBLE | TOO_LARGE | TOO_LATE,
)
async def load_row(
    request: Request,
    access: ReaderTable,
    key: Annotated[str, Path(description="`17`, or `region=eu,id=17`, or a JSON object, percent-encoded")],
    columns: Columns = None,
    as_of: AsOf = None,
    consistency: Consistency = "committed",
    timeout_s: TimeoutS = FRESH_S,
) -> Response:
    """Load the row of a key."""
    from query.tables import rows

    if consistency == "fresh":
        if as_of is not None:
            raise Invalid("consistency: fresh is the present, so leave out as_of")
        found = await _fresh(request, access, key, columns, timeout_s)
        if found is not None:
            return json_response(found)
    return json_response(await run_in_threadpool(rows.load_row, access, key, columns, as_of))


async def _fresh(
    request: Request, access: TableAccess, key: str, columns: str | None, timeout_s: float
) -> dict[str, Any] | None:
    """Return the row including unpublished changes. None if the published table has it by now."""
    state = request.app.state
    if state.hot_rows is None:
        return None
    found = await run_in_threadpool(lambda: state.hot_rows().load_row(access, key, columns))
    if isinstance(found, dict):
        return found
    if found == "wait":
        table = access.identifier.parts
        tables = {access.warehouse.name: {table}}
        await Freshness(state.ingest.api).wait_until_fresh(tables, timeout_s)
    return None


@router.get(
    TABLE + "/rows", operation_id="listRows", response_model=RowList, responses=NOT_VISIBLE | TOO_LARGE
)
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
    """List rows that match a predicate and a range of dates, in no particular order. Files that cannot have
    such rows are not read. Later pages are of the same snapshot as the first.
    """
    from query.tables import rows

    page.size = limit
    found = rows.list_rows(access, page, where, columns, as_of, from_date, to_date, date_column)
    return json_response(found)
