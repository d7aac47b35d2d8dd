"""Routes for tags and branches of a table: names for snapshots."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict, Field

from catalog.api.dependencies import WriteSlot
from query.tables.dependencies import MOMENT_FORMS, TABLE, ReaderTable, WriterTable

router = APIRouter()

NAME_LENGTH_MAX = 255


RefSegment = Annotated[str, Path(description="The name of a tag or branch, percent-encoded")]


class RefRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str = Field(min_length=1, max_length=NAME_LENGTH_MAX)
    snapshot_id: int | None = Field(None, ge=0, description="Default: the current snapshot")
    as_of: str | int | None = Field(None, description=f"The snapshot of a moment: {MOMENT_FORMS}")
    max_ref_age_ms: int | None = Field(None, ge=1, description="Maintenance drops the name after this time")


class RefAnswer(BaseModel):
    name: str
    snapshot_id: int
    max_ref_age_ms: int | None
    max_snapshot_age_ms: int | None
    min_snapshots_to_keep: int | None


class TagList(BaseModel):
    tags: list[RefAnswer]


class BranchList(BaseModel):
    branches: list[RefAnswer]


@router.get(TABLE + "/tags", operation_id="listTags", response_model=TagList)
def list_tags(access: ReaderTable) -> Any:
    """List the tags of a table."""
    from query.tables import refs

    return refs.list_tags(access)


@router.post(TABLE + "/tags", operation_id="createTag", response_model=RefAnswer)
def create_tag(access: WriterTable, body: RefRequest, _: WriteSlot) -> Any:
    """Give a snapshot a name. As long as the tag exists, maintenance keeps the snapshot."""
    from query.tables import refs

    return refs.create_tag(access, body)


@router.delete(TABLE + "/tags/{name}", operation_id="dropTag", status_code=204)
def drop_tag(access: WriterTable, name: RefSegment, _: WriteSlot) -> None:
    """Drop a tag. The snapshot stays until maintenance expires it."""
    from query.tables import refs

    refs.drop_tag(access, name)


@router.get(TABLE + "/branches", operation_id="listBranches", response_model=BranchList)
def list_branches(access: ReaderTable) -> Any:
    """List the branches of a table, including `main`."""
    from query.tables import refs

    return refs.list_branches(access)


@router.post(TABLE + "/branches", operation_id="createBranch", response_model=RefAnswer)
def create_branch(access: WriterTable, body: RefRequest, _: WriteSlot) -> Any:
    """Create a branch at a snapshot. Engines write to it by its name."""
    from query.tables import refs

    return refs.create_branch(access, body)


@router.delete(TABLE + "/branches/{name}", operation_id="dropBranch", status_code=204)
def drop_branch(access: WriterTable, name: RefSegment, _: WriteSlot) -> None:
    """Drop a branch. Snapshots that are on no other branch stay until maintenance expires them."""
    from query.tables import refs

    refs.drop_branch(access, name)
