"""Routes for the snapshots of a table: list them, load one, and roll the table back to one."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from catalog.api.dependencies import WriteSlot
from catalog.api.pagination import Paged, PageDep
from query.tables.dependencies import (
    MOMENT_FORMS,
    NOT_VISIBLE,
    TABLE,
    AsOf,
    ReaderTable,
    SnapshotId,
    WriterTable,
)

router = APIRouter()


class TableSnapshot(BaseModel):
    snapshot_id: int
    parent_id: int | None
    time: str
    time_ms: int
    operation: str | None
    summary: dict[str, str]
    is_current: bool
    schema_id: int | None
    refs: list[str] = Field(description="Tags and branches that point to it")
    number: int | None = Field(description="The commit of the warehouse that added it")
    principal: str | None = Field(description="The caller of that commit")


class MomentAnswer(BaseModel):
    number: int | None
    time: str
    snapshot_id: int | None


class SnapshotList(Paged):
    as_of: MomentAnswer
    snapshots: list[TableSnapshot] = Field(description="The newest first")


class RollbackRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")
    snapshot_id: int | None = Field(None, ge=0, description="The snapshot to set the table back to")
    as_of: str | int | None = Field(None, description=f"The moment to set it back to: {MOMENT_FORMS}")
    dry_run: bool = Field(False, description="Only say what would be undone")


class RollbackAnswer(BaseModel):
    snapshot_id: int = Field(description="The snapshot that is current now")
    previous_snapshot_id: int | None
    undone: list[TableSnapshot] = Field(description="Snapshots that are no longer part of the table")
    number: int | None = Field(description="The commit of the rollback; null for a dry run or no change")
    notice: str | None = Field(description="What the rollback means for ingest")


@router.get(
    TABLE + "/snapshots", operation_id="listSnapshots", response_model=SnapshotList, responses=NOT_VISIBLE
)
def list_snapshots(access: ReaderTable, page: PageDep, as_of: AsOf = None) -> Any:
    """List the snapshots that a table has, or had at a moment, the newest first."""
    from query.tables import snapshots

    return snapshots.list_snapshots(access, page, as_of)


@router.get(TABLE + "/snapshots/{snapshot_id}", operation_id="loadSnapshot", response_model=TableSnapshot)
def load_snapshot(access: ReaderTable, snapshot_id: SnapshotId) -> Any:
    """Load one snapshot."""
    from query.tables import snapshots

    return snapshots.load_snapshot(access, snapshot_id)


@router.post(TABLE + "/rollback", operation_id="rollback", response_model=RollbackAnswer)
def rollback(access: WriterTable, body: RollbackRequest, _: WriteSlot) -> Any:
    """Roll a table back to a snapshot or a moment. This is a new commit: history and snapshots stay."""
    from query.tables import snapshots

    return snapshots.rollback(access, body)
