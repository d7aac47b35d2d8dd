"""Maintenance over HTTP: policies, health, what runs next and why, and requests to do something now."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from catalog.api.dependencies import (
    AdminWarehouse,
    CallerDep,
    NamespaceDep,
    ReaderWarehouse,
    TableDep,
    WriterWarehouse,
)
from catalog.errors import NotFound
from catalog.models import Role
from maintenance.archive import ARCHIVE
from maintenance.service import Maintenance

router = APIRouter(prefix="/lake/v1", tags=["Maintenance"])
jobs_router = APIRouter(prefix="/lake/v1", tags=["Jobs"])
NAMESPACE = "/{warehouse}/namespaces/{namespace}"
TABLE = NAMESPACE + "/tables/{table}"
TABLES_MAX = 1000

DryRun = Annotated[bool, Query(alias="dry-run", description="Say what would be done, and do nothing")]


class NoSuchJob(NotFound):
    type = "NoSuchJobException"


class PolicyAnswer(BaseModel):
    policy: dict[str, Any] = Field(description="What holds here, with all defaults")
    own: dict[str, Any] = Field(description="What is set here itself")


class MomentsAnswer(BaseModel):
    policy: str
    kept: int = Field(description="Kept moments up to `thinned-number`; every later number is kept too")
    thinned_number: int = Field(serialization_alias="thinned-number")
    oldest: dict[str, Any] | None = Field(None, description="Number and time of the oldest kept moment")


class TableAnswer(PolicyAnswer):
    namespace: list[str]
    name: str
    health: dict[str, Any]
    next: str | None = Field(description="What runs next; null if nothing is due")
    why: list[str]
    not_before_ms: int | None = Field(
        serialization_alias="not-before-ms",
        description="It waits until then: a try failed, or another writer is at work; null if nothing is due",
    )
    last: dict[str, Any] = Field(description="For each action, when it ran last and what it did")
    files_waiting: int = Field(
        serialization_alias="files-waiting", description="Expiries whose files are not deleted yet"
    )


class WarehouseAnswer(PolicyAnswer):
    kept_moments: MomentsAnswer = Field(serialization_alias="kept-moments")
    tables: list[TableAnswer]


class ActionAnswer(BaseModel):
    state: Literal["done", "requested", "dry-run", "nothing-to-do"]
    detail: dict[str, Any]


class CompleteRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")
    epoch: int = Field(ge=1)
    facts: dict[str, Any] = Field(default_factory=dict)


def _maintenance(request: Request) -> Maintenance:
    maintenance: Maintenance = request.app.state.maintenance
    return maintenance


MaintenanceDep = Annotated[Maintenance, Depends(_maintenance)]


@router.get("/{warehouse}/maintenance", operation_id="loadMaintenance", response_model=WarehouseAnswer)
def load_warehouse(maintenance: MaintenanceDep, warehouse: ReaderWarehouse) -> Any:
    """The policy of a warehouse, its kept moments, and the health of its tables (at most 1,000)."""
    return maintenance.of_warehouse(warehouse, TABLES_MAX)


@router.put("/{warehouse}/maintenance", operation_id="setMaintenance", response_model=PolicyAnswer)
def set_warehouse(maintenance: MaintenanceDep, warehouse: AdminWarehouse, body: dict[str, Any]) -> Any:
    """Set the policy of a warehouse. It replaces what was set before."""
    return maintenance.set_policy(warehouse, body)


@router.get(NAMESPACE + "/maintenance", operation_id="loadNamespaceMaintenance", response_model=PolicyAnswer)
def load_namespace(maintenance: MaintenanceDep, warehouse: ReaderWarehouse, namespace: NamespaceDep) -> Any:
    """The policy of a namespace."""
    return maintenance.policy(warehouse, namespace)


@router.put(NAMESPACE + "/maintenance", operation_id="setNamespaceMaintenance", response_model=PolicyAnswer)
def set_namespace(
    maintenance: MaintenanceDep, warehouse: AdminWarehouse, namespace: NamespaceDep, body: dict[str, Any]
) -> Any:
    """Set the policy of the tables in a namespace. It replaces what was set before."""
    return maintenance.set_policy(warehouse, body, namespace)


@router.get(TABLE + "/maintenance", operation_id="loadTableMaintenance", response_model=TableAnswer)
def load_table(maintenance: MaintenanceDep, warehouse: ReaderWarehouse, identifier: TableDep) -> Any:
    """The policy and the health of a table, what runs next and why, and what ran last."""
    return maintenance.of_table(warehouse, identifier)


@router.put(TABLE + "/maintenance", operation_id="setTableMaintenance", response_model=PolicyAnswer)
def set_table(
    maintenance: MaintenanceDep, warehouse: AdminWarehouse, identifier: TableDep, body: dict[str, Any]
) -> Any:
    """Set the policy of a table. It replaces what was set before."""
    return maintenance.set_policy(warehouse, body, identifier.namespace, identifier.name)


_ACCEPTED: dict[int | str, dict[str, Any]] = {
    202: {"model": ActionAnswer, "description": "A worker will do it; see `last` of the table's maintenance"}
}


@router.post(
    TABLE + "/compact", operation_id="compactTable", response_model=ActionAnswer, responses=_ACCEPTED
)
def compact(
    maintenance: MaintenanceDep,
    warehouse: WriterWarehouse,
    identifier: TableDep,
    response: Response,
    dry_run: DryRun = False,
) -> Any:
    """Join the small files of a table, and rewrite files with many deleted rows. A Spark worker does it."""
    return _by_worker(maintenance.request(warehouse, identifier, "compact", is_dry_run=dry_run), response)


@router.post(
    TABLE + "/rewrite-manifests",
    operation_id="rewriteManifests",
    response_model=ActionAnswer,
    responses=_ACCEPTED,
)
def rewrite_manifests(
    maintenance: MaintenanceDep,
    warehouse: WriterWarehouse,
    identifier: TableDep,
    response: Response,
    dry_run: DryRun = False,
) -> Any:
    """Rewrite the manifests of a table into fewer. A Spark worker does it."""
    found = maintenance.request(warehouse, identifier, "rewrite-manifests", is_dry_run=dry_run)
    return _by_worker(found, response)


@router.post(
    TABLE + "/archive", operation_id="archiveTable", response_model=ActionAnswer, responses=_ACCEPTED
)
def archive(
    maintenance: MaintenanceDep,
    warehouse: WriterWarehouse,
    identifier: TableDep,
    response: Response,
    dry_run: DryRun = False,
) -> Any:
    """Move old changes of a changes table to its archive. A Spark worker does it.

    400 if the table is no changes table, or `archive-after-days` is not set for it.
    """
    return _by_worker(maintenance.request(warehouse, identifier, ARCHIVE, is_dry_run=dry_run), response)


def _by_worker(answer: dict[str, Any], response: Response) -> dict[str, Any]:
    if answer["state"] == "requested":
        response.status_code = 202
    return answer


@router.post(TABLE + "/expire", operation_id="expireTable", response_model=ActionAnswer)
def expire(
    maintenance: MaintenanceDep, warehouse: WriterWarehouse, identifier: TableDep, dry_run: DryRun = False
) -> Any:
    """Remove the snapshots that no kept moment, branch, tag or open transaction needs."""
    return maintenance.expire(warehouse, identifier, is_dry_run=dry_run)


@router.post(TABLE + "/remove-orphans", operation_id="removeOrphans", response_model=ActionAnswer)
def remove_orphans(
    maintenance: MaintenanceDep, warehouse: AdminWarehouse, identifier: TableDep, dry_run: DryRun = True
) -> Any:
    """Delete old files in the table's location that nothing refers to. A dry run unless `dry-run=false`.

    409 if more than a tenth of the bytes would be deleted: then something is wrong with the table.
    """
    return maintenance.remove_orphans(warehouse, identifier, is_dry_run=dry_run)


@jobs_router.post("/jobs/{job}/complete", operation_id="completeJob", status_code=204)
def complete_job(maintenance: MaintenanceDep, caller: CallerDep, job: str, body: CompleteRequest) -> None:
    """End a job of maintenance or verification, and record what it did. For workers."""
    found = maintenance.job(job)
    role = caller.role(found.warehouse) if found is not None else None
    if found is None or role is None or role < Role.WRITER:
        raise NoSuchJob(f"Job does not exist: {job}")
    maintenance.complete(found, body.epoch, body.facts)
