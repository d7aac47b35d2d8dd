"""Snapshots of a table: list them, load one, and roll the table back to one."""

from __future__ import annotations

from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot, ancestors_of

from catalog.api.pagination import INTEGER_MAX, Page
from catalog.errors import Conflict, Invalid
from catalog.moments import AtTime
from ingest.store.tables import CHANGES_SUFFIX
from query.tables.access import TableAccess
from query.tables.api.snapshots import RollbackRequest
from query.tables.moments import (
    NoSuchSnapshot,
    TableMoment,
    commits_of_snapshots,
    number_of_version,
    table_at,
)
from query.tables.opening import errors_as_catalog_errors


def list_snapshots(access: TableAccess, page: Page, as_of: str | None) -> dict[str, Any]:
    moment = table_at(access, as_of)
    before_ms, before_id = page.after(INTEGER_MAX, "")
    before = (before_ms, int(before_id or 0))
    found = sorted(moment.table.snapshots(), key=_order, reverse=True)
    shown, token = page.cut([one for one in found if _order(one) < before], _page_key)
    rows = _answers(access, moment, shown)
    return {"as_of": moment.as_json(), "snapshots": rows, "next_page_token": token}


def load_snapshot(access: TableAccess, snapshot_id: int) -> dict[str, Any]:
    moment = table_at(access, None)
    snapshot = moment.table.snapshot_by_id(snapshot_id)
    if snapshot is None:
        raise NoSuchSnapshot(f"{access.identifier} has no snapshot {snapshot_id}")
    return _answers(access, moment, [snapshot])[0]


def rollback(access: TableAccess, body: RollbackRequest) -> dict[str, Any]:
    now = table_at(access, None)
    target = _target(access, now.table, body)
    undone = _answers(access, now, _undone(now, target))
    answer = {
        "snapshot_id": target.snapshot_id,
        "previous_snapshot_id": now.snapshot_id,
        "undone": undone,
        "number": None,
        "notice": _notice(access, target, now.table.metadata),
    }
    if body.dry_run or target.snapshot_id == now.snapshot_id:
        return answer
    with errors_as_catalog_errors():
        now.table.manage_snapshots().set_current_snapshot(target.snapshot_id).commit()
    return answer | {"number": number_of_version(access, now.table.metadata_location)}


def _target(access: TableAccess, table: Table, body: RollbackRequest) -> Snapshot:
    if (body.snapshot_id is None) == (body.as_of is None):
        raise Invalid("Give snapshot_id or as_of, one of them")
    if body.as_of is not None:
        moment = table_at(access, str(body.as_of))
        if moment.snapshot is None:
            raise Conflict(f"{access.identifier} had no snapshot at this moment: it was still without rows")
        snapshot_id = moment.snapshot.snapshot_id
    else:
        assert body.snapshot_id is not None
        snapshot_id = body.snapshot_id
    found = table.snapshot_by_id(snapshot_id)
    if found is None:
        raise NoSuchSnapshot(f"{access.identifier} has no snapshot {snapshot_id}: it may have been expired")
    was_current = {entry.snapshot_id for entry in table.history()}
    was_current |= {one.snapshot_id for one in ancestors_of(table.current_snapshot(), table.metadata)}
    if snapshot_id not in was_current:
        raise Conflict(
            f"Snapshot {snapshot_id} was never current on main: it belongs to a branch or was not published"
        )
    return found


def _undone(now: TableMoment, target: Snapshot) -> list[Snapshot]:
    """Return the snapshots after the target, the newest first; those that both states share are not
    undone.
    """
    kept = {one.snapshot_id for one in ancestors_of(target, now.table.metadata)}
    return [one for one in ancestors_of(now.snapshot, now.table.metadata) if one.snapshot_id not in kept]


def _notice(access: TableAccess, target: Snapshot, metadata: TableMetadata) -> str | None:
    """Return what the rollback means for changes that arrive later; None if none ever landed."""
    if access.landing is None:
        return None
    name = access.identifier.parts
    landed = access.landing.one(access.warehouse.name, name)
    if not landed.landed_id:
        return None
    table, changes = ".".join(name), name[-1] + CHANGES_SUFFIX
    mirror = "This table is a mirror that ingest writes to"
    known, choice = landed.mirror_snapshot_id, landed.settings.mirror_changed
    is_undone = known is not None and known not in {one.snapshot_id for one in ancestors_of(target, metadata)}
    if choice == "rebuild" and is_undone:
        return (
            f"{mirror}, and its setting mirror-changed is rebuild: with the next change it is rebuilt from "
            f"{changes}, which brings back what the rollback undoes"
        )
    if choice == "pause" and is_undone:
        return (
            f"{mirror}. After the rollback its changes are acknowledged and wait. "
            f"`calve table settings {table} mirror-changed=accept` then applies them to the rows as they "
            f"are; `calve table rebuild {table}` brings back what the rollback undoes, and applies them too"
        )
    return (
        f"{mirror}. Changes that arrive from now on are applied to the rows as they are after the rollback. "
        f"Changes that it undoes stay in {changes}, and are not applied again"
    )


def _order(snapshot: Snapshot) -> tuple[int, int]:
    return snapshot.timestamp_ms, snapshot.snapshot_id


def _page_key(snapshot: Snapshot) -> tuple[int, str]:
    return snapshot.timestamp_ms, str(snapshot.snapshot_id)


def _answers(access: TableAccess, moment: TableMoment, snapshots: list[Snapshot]) -> list[dict[str, Any]]:
    commits = commits_of_snapshots(access) if snapshots else {}
    refs: dict[int, list[str]] = {}
    for name, ref in moment.table.refs().items():
        refs.setdefault(ref.snapshot_id, []).append(name)
    answers = []
    for snapshot in snapshots:
        commit = commits.get(snapshot.snapshot_id, {})
        summary = snapshot.summary
        answers.append(
            {
                "snapshot_id": snapshot.snapshot_id,
                "parent_id": snapshot.parent_snapshot_id,
                "time": str(AtTime(snapshot.timestamp_ms)),
                "time_ms": snapshot.timestamp_ms,
                "operation": summary.operation.value if summary is not None else None,
                "summary": summary.additional_properties if summary is not None else {},
                "is_current": snapshot.snapshot_id == moment.snapshot_id,
                "schema_id": snapshot.schema_id,
                "refs": sorted(refs.get(snapshot.snapshot_id, ())),
                "number": commit.get("number"),
                "principal": commit.get("principal"),
            }
        )
    return answers
