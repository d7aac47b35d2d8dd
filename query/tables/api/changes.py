"""Routes for the changes of a table: of one row, and between two moments."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from catalog.api.dependencies import CatalogDep, ReaderWarehouse, TableDep
from catalog.api.lake.history import EventAnswer, table_history
from catalog.api.pagination import Paged, PageDep
from catalog.api.responses import json_response
from query.tables.dependencies import MOMENT_FORMS, TABLE, TOO_LARGE, OpenerDep, ReaderTable

router = APIRouter()

NO_CHANGES: dict[int | str, dict[str, Any]] = {
    409: {
        "description": "The table has no changes table, or it no longer has all changes between the moments, "
        "or the moment is a token whose changes are not visible yet."
    }
}


class RowVersion(BaseModel):
    """One change of a row."""

    operation: str
    before: dict[str, Any] | None = Field(description="The row before it, as far as the source sent it")
    after: dict[str, Any] | None = Field(description="The row after it; null for a delete")
    commit_timestamp: str | None = Field(description="When it became visible")
    source_timestamp: str | None = Field(description="When it happened at the source")
    source: str | None
    position: str | None = Field(description="Its position in the log of the source")
    transaction: str | None
    event_id: str | None


class RowChange(RowVersion):
    number: int | None = Field(description="The commit of the warehouse that published it")


class HistoryAnswer(Paged):
    """Of a table: `events`. Of a row (with `key`): `key` and `versions`."""

    events: list[EventAnswer] | None = None
    key: dict[str, Any] | None = None
    versions: list[RowVersion] | None = None


class ChangeList(Paged):
    from_number: int
    to_number: int
    changes: list[RowChange]


Key = Annotated[
    list[str] | None,
    Query(
        description="A row: `17` for a key of one column, else `region=eu,id=17`, or a JSON object. "
        "Without it the history of the table itself"
    ),
]


From = Annotated[str | None, Query(alias="from", description=f"After this moment: {MOMENT_FORMS}")]


To = Annotated[str | None, Query(description="Up to this moment, in the same forms. Default: the present")]


@router.get(
    TABLE + "/history",
    operation_id="loadTableHistory",
    response_model=HistoryAnswer,
    response_model_exclude_unset=True,
    responses=NO_CHANGES | TOO_LARGE,
)
def load_table_history(
    catalog: CatalogDep,
    warehouse: ReaderWarehouse,
    identifier: TableDep,
    opener: OpenerDep,
    page: PageDep,
    key: Key = None,
) -> Any:
    """Load the history of a table: what happened to its name, newest first, also before it was dropped and
    created again.

    Of a row (`key`): every version of it, oldest first.
    """
    if key is None:
        return table_history(catalog, warehouse, identifier, page)
    from query.tables import changes

    return json_response(changes.row_history(opener.access(warehouse, identifier), key, page))


@router.get(
    TABLE + "/changes",
    operation_id="listChanges",
    response_model=ChangeList,
    responses=NO_CHANGES | TOO_LARGE,
)
def list_changes(access: ReaderTable, page: PageDep, from_: From = None, to: To = None) -> Response:
    """List changes that became visible between two moments, in the order of visibility."""
    from query.tables import changes

    return json_response(changes.list_changes(access, page, from_, to))
