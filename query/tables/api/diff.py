"""Routes for the difference of one table between two moments: rows, schema, files."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from catalog.api.responses import json_response
from query.tables.api.changes import To
from query.tables.api.snapshots import MomentAnswer
from query.tables.dependencies import MOMENT_FORMS, TABLE, ReaderTable

router = APIRouter()

OTHER_TABLE: dict[int | str, dict[str, Any]] = {
    409: {
        "description": "The table was dropped and made again between the moments, or a moment is a token "
        "whose changes are not visible yet."
    }
}
LATE: dict[int | str, dict[str, Any]] = {
    504: {"description": "What differs could not be read in the time of a request."}
}
LIMIT_MAX = 10_000


class ChangedRow(BaseModel):
    key: dict[str, Any]
    old: dict[str, Any] = Field(description="The columns that differ, before")
    new: dict[str, Any] = Field(description="The same columns, after")


class RowDifference(BaseModel):
    key: list[str] | None = Field(description="The key columns; null: rows are compared as a whole")
    added_count: int
    removed_count: int
    changed_count: int
    added: list[dict[str, Any]]
    removed: list[dict[str, Any]]
    changed: list[ChangedRow]
    truncated: bool = Field(description="The lists have `limit` rows each; the counts are whole")


class ColumnChange(BaseModel):
    column: str
    change: str = Field(description="added, dropped, renamed, type, required, comment or moved")
    old: Any = None
    new: Any = None


class FileDifference(BaseModel):
    added: int
    removed: int
    kept: int
    added_bytes: int
    removed_bytes: int


class DiffAnswer(BaseModel):
    from_: MomentAnswer = Field(alias="from")
    to: MomentAnswer
    rows: RowDifference
    schema_: list[ColumnChange] = Field(alias="schema")
    files: FileDifference


DiffFrom = Annotated[str, Query(alias="from", description=f"The earlier moment: {MOMENT_FORMS}")]


Limit = Annotated[int, Query(ge=0, le=LIMIT_MAX, description="Most rows of each list")]


@router.get(
    TABLE + "/diff", operation_id="diffTable", response_model=DiffAnswer, responses=OTHER_TABLE | LATE
)
def diff_table(
    request: Request, access: ReaderTable, from_: DiffFrom, to: To = None, limit: Limit = 100
) -> Response:
    """Compare two moments: rows added, removed and changed, columns, files."""
    from query.tables import diff

    return json_response(diff.diff_table(access, from_, to, limit, request.scope.get("calve.deadline_s")))
