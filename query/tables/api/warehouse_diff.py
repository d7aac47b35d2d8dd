"""Routes for the difference of a whole warehouse between two moments."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from catalog.api.dependencies import CatalogDep, ReaderWarehouse
from catalog.api.pagination import Paged, PageDep
from query.tables.api.changes import To
from query.tables.dependencies import MOMENT_FORMS, TOO_LARGE

router = APIRouter()


class EntryDifference(BaseModel):
    namespace: list[str]
    name: str
    uuid: str
    kind: str
    change: str = Field(description="created, dropped, renamed or changed")
    renamed_from: list[str] | None = Field(description="The levels of its namespace and its name before")
    commits: int = Field(description="How many commits touched it")
    operations: list[str]
    principals: list[str]
    snapshots_added: int
    old_snapshot_id: int | None
    new_snapshot_id: int | None
    schema_changed: bool


class WarehouseMoment(BaseModel):
    number: int
    time: str


class WarehouseDiff(Paged):
    from_: WarehouseMoment = Field(alias="from", serialization_alias="from")
    to: WarehouseMoment
    commits: int
    entries: list[EntryDifference] = Field(description="By namespace and name")


DiffFrom = Annotated[str, Query(alias="from", description=f"The earlier moment: {MOMENT_FORMS}")]


@router.get(
    "/{warehouse}/diff", operation_id="diffWarehouse", response_model=WarehouseDiff, responses=TOO_LARGE
)
def diff_warehouse(
    catalog: CatalogDep, warehouse: ReaderWarehouse, page: PageDep, from_: DiffFrom, to: To = None
) -> Any:
    """List the tables and views that differ between two moments, and how."""
    from query.tables import warehouse_diff

    return warehouse_diff.diff_warehouse(catalog, warehouse, page, from_, to)
