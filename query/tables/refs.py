"""Tags and branches of a table: names for snapshots. A tag is fixed, a branch can be written to."""

from __future__ import annotations

from typing import Any

from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType

from catalog.errors import AlreadyExists, Conflict, Invalid, NotFound
from catalog.names import decode_segment
from query.tables.access import TableAccess
from query.tables.api.refs import RefRequest
from query.tables.moments import NoSuchSnapshot, table_at
from query.tables.opening import errors_as_catalog_errors


class NoSuchRef(NotFound):
    type = "NoSuchRefException"


def list_tags(access: TableAccess) -> dict[str, Any]:
    return {"tags": _listed(access, SnapshotRefType.TAG)}


def create_tag(access: TableAccess, body: RefRequest) -> dict[str, Any]:
    return _create(access, body, SnapshotRefType.TAG)


def drop_tag(access: TableAccess, name: str) -> None:
    _drop(access, decode_segment(name), SnapshotRefType.TAG)


def list_branches(access: TableAccess) -> dict[str, Any]:
    return {"branches": _listed(access, SnapshotRefType.BRANCH)}


def create_branch(access: TableAccess, body: RefRequest) -> dict[str, Any]:
    return _create(access, body, SnapshotRefType.BRANCH)


def drop_branch(access: TableAccess, name: str) -> None:
    _drop(access, decode_segment(name), SnapshotRefType.BRANCH)


def _listed(access: TableAccess, kind: SnapshotRefType) -> list[dict[str, Any]]:
    refs = access.current().refs()
    return [_answer(name, ref) for name, ref in sorted(refs.items()) if ref.snapshot_ref_type == kind]


def _create(access: TableAccess, body: RefRequest, kind: SnapshotRefType) -> dict[str, Any]:
    if body.snapshot_id is not None and body.as_of is not None:
        raise Invalid("Give snapshot_id or as_of, not both")
    table = access.current()
    if body.name in table.refs():
        existing = table.refs()[body.name].snapshot_ref_type
        raise AlreadyExists(f"{access.identifier} has a {existing.value} {body.name} already")
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
