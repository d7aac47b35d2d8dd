"""Tags and branches of a table: names for snapshots. A tag stays where it is, a branch can be written to."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict, Field
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType

from catalog.api.dependencies import WriteSlot
from catalog.errors import AlreadyExists, Conflict, Invalid, NotFound
from catalog.names import decode_segment
from query.tables.dependencies import MOMENT_FORMS, TABLE, ReaderTable, WriterTable
from query.tables.moments import NoSuchSnapshot, table_at
from query.tables.opening import TableAccess, errors_as_catalog_errors

router = APIRouter()

NAME_LENGTH_MAX = 255
RefSegment = Annotated[str, Path(description="The name of a tag or branch, percent-encoded")]


class NoSuchRef(NotFound):
    type = "NoSuchRefException"


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
    """The tags of a table."""
    return {"tags": _listed(access, SnapshotRefType.TAG)}


@router.post(TABLE + "/tags", operation_id="createTag", response_model=RefAnswer)
def create_tag(access: WriterTable, body: RefRequest, _: WriteSlot) -> Any:
    """Give a snapshot a name. As long as the tag is there, maintenance keeps the snapshot."""
    return _create(access, body, SnapshotRefType.TAG)


@router.delete(TABLE + "/tags/{name}", operation_id="dropTag", status_code=204)
def drop_tag(access: WriterTable, name: RefSegment, _: WriteSlot) -> None:
    """Drop a tag. The snapshot stays until maintenance expires it."""
    _drop(access, decode_segment(name), SnapshotRefType.TAG)


@router.get(TABLE + "/branches", operation_id="listBranches", response_model=BranchList)
def list_branches(access: ReaderTable) -> Any:
    """The branches of a table, `main` too."""
    return {"branches": _listed(access, SnapshotRefType.BRANCH)}


@router.post(TABLE + "/branches", operation_id="createBranch", response_model=RefAnswer)
def create_branch(access: WriterTable, body: RefRequest, _: WriteSlot) -> Any:
    """Begin a branch at a snapshot. Engines write to it by its name."""
    return _create(access, body, SnapshotRefType.BRANCH)


@router.delete(TABLE + "/branches/{name}", operation_id="dropBranch", status_code=204)
def drop_branch(access: WriterTable, name: RefSegment, _: WriteSlot) -> None:
    """Drop a branch. Snapshots that are on no other branch stay until maintenance expires them."""
    _drop(access, decode_segment(name), SnapshotRefType.BRANCH)


def _listed(access: TableAccess, kind: SnapshotRefType) -> list[dict[str, Any]]:
    refs = access.current().refs()
    return [_answer(name, ref) for name, ref in sorted(refs.items()) if ref.snapshot_ref_type == kind]


def _create(access: TableAccess, body: RefRequest, kind: SnapshotRefType) -> dict[str, Any]:
    if body.snapshot_id is not None and body.as_of is not None:
        raise Invalid("Give snapshot_id or as_of, not both")
    table = access.current()
    if body.name in table.refs():
        taken = table.refs()[body.name].snapshot_ref_type
        raise AlreadyExists(f"{access.identifier} has a {taken.value} {body.name} already")
    snapshot_id = body.snapshot_id
    if snapshot_id is None:
        snapshot_id = table_at(access, None if body.as_of is None else str(body.as_of)).snapshot_id
    if snapshot_id is None:
        raise Conflict(f"{access.identifier} has no snapshot that could be named")
    if table.snapshot_by_id(snapshot_id) is None:
        raise NoSuchSnapshot(f"{access.identifier} has no snapshot {snapshot_id}")
    with errors_as_catalog_errors():
        manage = table.manage_snapshots()
        create = manage.create_tag if kind == SnapshotRefType.TAG else manage.create_branch
        create(snapshot_id, body.name, body.max_ref_age_ms).commit()
    return _answer(body.name, table.refs()[body.name])


def _drop(access: TableAccess, name: str, kind: SnapshotRefType) -> None:
    table = access.current()
    ref = table.refs().get(name)
    if ref is None or ref.snapshot_ref_type != kind:
        raise NoSuchRef(f"{access.identifier} has no {kind.value} {name}")
    if name == MAIN_BRANCH:
        raise Invalid("main is the table itself and cannot be dropped as a branch")
    with errors_as_catalog_errors():
        table.manage_snapshots().remove_tag(name).commit()


def _answer(name: str, ref: SnapshotRef) -> dict[str, Any]:
    return {
        "name": name,
        "snapshot_id": ref.snapshot_id,
        "max_ref_age_ms": ref.max_ref_age_ms,
        "max_snapshot_age_ms": ref.max_snapshot_age_ms,
        "min_snapshots_to_keep": ref.min_snapshots_to_keep,
    }
