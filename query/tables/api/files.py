"""Routes for Parquet files: append, overwrite, export."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from catalog.api.dependencies import WriteSlot
from query.tables.api.snapshots import MomentAnswer
from query.tables.dependencies import MOMENT_FORMS, TABLE, WriterTable

router = APIRouter()

FILES_MAX = 1000


class FilesRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")
    files: list[str] = Field(
        min_length=1,
        max_length=FILES_MAX,
        description="Locations of Parquet files below the warehouse's root",
    )


class OverwriteRequest(FilesRequest):
    where: str | None = Field(None, description="Replace only the rows of this predicate; default: all")


class FilesAnswer(BaseModel):
    snapshot_id: int
    number: int | None
    files: int
    rows: int = Field(description="Rows of the files")


class ExportRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")
    location: str | None = Field(
        None, description="A location of the warehouse that no table has; default: `exports` below its root"
    )
    as_of: str | int | None = Field(None, description=f"The moment: {MOMENT_FORMS}")
    where: str | None = Field(None, description="Export only the rows of this predicate")
    columns: list[str] | None = None


class ExportAnswer(BaseModel):
    as_of: MomentAnswer
    files: list[str]
    rows: int


@router.post(TABLE + "/append-files", operation_id="appendFiles", response_model=FilesAnswer)
def append_files(access: WriterTable, body: FilesRequest, _: WriteSlot) -> Any:
    """Add Parquet files to a table as they are. Their columns are matched by name. All files or none."""
    from query.tables import files

    return files.append_files(access, body)


@router.post(TABLE + "/overwrite-files", operation_id="overwriteFiles", response_model=FilesAnswer)
def overwrite_files(access: WriterTable, body: OverwriteRequest, _: WriteSlot) -> Any:
    """Replace all rows, or those of a predicate, by the rows of Parquet files, in one commit."""
    from query.tables import files

    return files.overwrite_files(access, body)


@router.post(TABLE + "/export", operation_id="exportTable", response_model=ExportAnswer)
def export_table(access: WriterTable, body: ExportRequest, _: WriteSlot) -> Any:
    """Write the rows of one moment as Parquet files. If it fails, the files that were written are deleted."""
    from query.tables import files

    return files.export_table(access, body)
