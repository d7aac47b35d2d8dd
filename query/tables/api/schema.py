"""Routes for the schema of a table: its versions, a check of a proposed one, and changes to it."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from catalog.api.dependencies import WriteSlot
from catalog.api.responses import json_response
from query.tables.api.diff import ColumnChange
from query.tables.api.snapshots import MomentAnswer
from query.tables.dependencies import NOT_VISIBLE, TABLE, AsOf, ReaderTable, WriterTable

router = APIRouter()

COLUMNS_MAX = 10_000


class SchemaColumn(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str = Field(min_length=1)
    type: str | dict[str, Any] = Field(description="An Iceberg type: `long`, `decimal(10, 2)`, or an object")
    required: bool = False
    doc: str | None = None


class AddedColumn(SchemaColumn):
    first: bool = False
    after: str | None = Field(None, description="Put it behind this column; default: at the end")


class Move(BaseModel):
    model_config = ConfigDict(extra="forbid")
    column: str
    first: bool = False
    before: str | None = None
    after: str | None = None


class ProposedSchema(BaseModel):
    model_config = ConfigDict(extra="forbid")
    columns: list[SchemaColumn] = Field(min_length=1, max_length=COLUMNS_MAX)


class EvolveRequest(BaseModel):
    """Changes in the order of these fields. A column inside a struct is named `struct.column`."""

    model_config = ConfigDict(extra="forbid")
    rename: dict[str, str] = Field(default_factory=dict, description="Old name to new name")
    drop: list[str] = Field(default_factory=list)
    widen: dict[str, str] = Field(
        default_factory=dict, description="Column to its wider type: int to long, float to double, decimals"
    )
    optional: list[str] = Field(default_factory=list, description="Columns that may be null from now on")
    comment: dict[str, str] = Field(default_factory=dict)
    add: list[AddedColumn] = Field(default_factory=list, max_length=COLUMNS_MAX)
    reorder: list[Move] = Field(default_factory=list)
    dry_run: bool = Field(False, description="Only say what would be done")


class SchemaVersion(BaseModel):
    schema_id: int
    is_current: bool
    columns: list[dict[str, Any]]
    identifier_columns: list[str]
    number: int | None = Field(description="The commit of the warehouse that made it current first")
    time: str | None
    principal: str | None


class SchemaList(BaseModel):
    as_of: MomentAnswer
    current_schema_id: int
    versions: list[SchemaVersion]


class CheckedColumn(BaseModel):
    column: str
    compatible: bool
    action: Literal["none", "add", "widen", "optional", "comment", "keep", "refuse"]
    reason: str


class CheckAnswer(BaseModel):
    compatible: bool
    columns: list[CheckedColumn]


class EvolveAnswer(BaseModel):
    schema_id: int
    changes: list[ColumnChange]
    number: int | None = Field(description="The commit; null for a dry run or no change")


@router.get(TABLE + "/schema", operation_id="loadSchema", response_model=SchemaList, responses=NOT_VISIBLE)
def load_schema(access: ReaderTable, as_of: AsOf = None) -> Any:
    """List the versions of the schema, each with the time and the principal that made it current."""
    from query.tables import schema

    return schema.load_schema(access, as_of)


@router.post(TABLE + "/schema/check", operation_id="checkSchema", response_model=CheckAnswer)
def check_schema(access: ReaderTable, body: ProposedSchema) -> Any:
    """Check whether rows of a proposed schema fit the table, and what would be done for each column."""
    from query.tables import schema

    return schema.check_schema(access, body)


@router.post(TABLE + "/schema/evolve", operation_id="evolveSchema", response_model=EvolveAnswer)
def evolve_schema(access: WriterTable, body: EvolveRequest, _: WriteSlot) -> Response:
    """Change the schema: rename, drop, widen, make optional, comment, add, reorder; all or nothing."""
    from query.tables import schema

    return json_response(schema.evolve_schema(access, body))
