"""The jobs API for workers (lease, heartbeat, publish, fail) and the list of jobs.

A worker needs the role writer in its warehouses, and uses only HTTP.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from catalog.api.context import refuse_invisible
from catalog.api.dependencies import CallerDep, CatalogDep, ReaderWarehouse
from catalog.api.transactions import table_commit
from catalog.errors import Invalid
from catalog.models import Caller, Role, StagedChange
from catalog.names import Namespace
from catalog.services import transactions
from catalog.services.catalog import Catalog
from catalog.services.commits import TableCommit
from catalog.services.publishing import publish_commits
from catalog.shutdown import stopping
from catalog.store.entries import InTransaction
from ingest.landing.job_service import CommitSource, JobService, NoSuchJob, Snapshots, TableRef
from ingest.store.jobs import Job, Jobs
from ingest.store.mirrors import Snapshot, counted

router = APIRouter(prefix="/lake/v1", tags=["Jobs"])
LOOK_EVERY_S = 0.02  # the shortest time between two queries for a job, however often the request is woken
WAIT_S_MAX = 25.0


class LeaseRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    worker: str = Field(min_length=1, max_length=200, description="The name of the worker, new at each start")
    slot: int = Field(0, ge=0, le=1000, description="The worker slot")
    wait_s: float = Field(0, alias="wait-s", ge=0, description="How long to wait for a job")
    about: dict[str, Any] = Field(default_factory=dict, description="Facts about the worker")


class HeartbeatRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")
    epoch: int = Field(ge=1)
    progress: dict[str, Any] = Field(default_factory=dict)
    tables: bool = Field(default=False, description="Return the tables of the job as they are now")


class PublishRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    epoch: int = Field(ge=1)
    table_changes: list[dict[str, Any]] | None = Field(
        None,
        alias="table-changes",
        description="The commits of the batch, as in commitTransaction of the Iceberg REST specification",
    )
    transaction: str | None = Field(
        None, description="Instead of `table-changes`: the open transaction that has the commits"
    )
    metrics: dict[str, Any] = Field(default_factory=dict)


class FailRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")
    epoch: int = Field(ge=1)
    error: str
    retry: bool = True


class LeaseAnswer(BaseModel):
    lease_s: float = Field(serialization_alias="lease-s")
    tables: list[dict[str, Any]] | None = Field(None, description="The tables of the job, if requested")


class PublishAnswer(BaseModel):
    number: int | None = Field(description="The number under which the batch became visible")


class JobAnswer(BaseModel):
    id: str
    warehouse: str
    state: str
    epoch: int
    worker: str
    attempts: int
    created_ms: int = Field(serialization_alias="created-ms")
    finished_ms: int | None = Field(None, serialization_alias="finished-ms")
    number: int | None = None
    error: str | None = None
    progress: dict[str, Any]


class JobList(BaseModel):
    jobs: list[JobAnswer]


def _job_service(request: Request) -> JobService:
    job_service: JobService = request.app.state.ingest.job_service
    return job_service


def _jobs(request: Request) -> Jobs:
    jobs: Jobs = request.app.state.ingest.jobs
    return jobs


JobServiceOf = Annotated[JobService, Depends(_job_service)]
JobsOf = Annotated[Jobs, Depends(_jobs)]


@router.post(
    "/jobs/lease",
    operation_id="leaseJob",
    response_model=dict[str, Any],
    responses={204: {"description": "No job is due"}},
)
async def lease(job_service: JobServiceOf, catalog: CatalogDep, caller: CallerDep, body: LeaseRequest) -> Any:
    """Lease the next batch, with its files and the tables that it writes to; 204 if there is none."""
    about = {**body.about, "principal": caller.name}
    until = time.monotonic() + min(body.wait_s, WAIT_S_MAX)
    while True:
        count, looked_s = job_service.wakeup.count, time.monotonic()
        job = await run_in_threadpool(_lease, job_service, catalog, caller, body.worker, about)
        if job is not None:
            return Response(orjson.dumps(job), media_type="application/json")
        if time.monotonic() >= until or stopping.is_set():
            return Response(status_code=204)
        await job_service.wakeup.wait(count, min(job_service.pause_s(), until - looked_s))
        await asyncio.sleep(max(0.0, looked_s + LOOK_EVERY_S - time.monotonic()))


def _lease(
    job_service: JobService, catalog: Catalog, caller: Caller, worker: str, about: dict[str, Any]
) -> dict[str, Any] | None:
    warehouses = [
        known.name
        for known in catalog.warehouses.all()
        if (role := caller.role(known.name)) is not None and role >= Role.WRITER
    ]
    return job_service.lease(worker, warehouses, about, caller.name)


def _mine(job_service: JobService, caller: Caller, job_id: str, least: Role) -> Job:
    """Return a job of a warehouse in which the caller has the role. Other jobs are reported as not
    existing.
    """
    job = job_service.get(job_id)
    role = caller.role(job.warehouse)
    if role is None or role < least:
        raise NoSuchJob(f"Job does not exist: {job_id}")
    return job


@router.post(
    "/jobs/{job}/heartbeat",
    operation_id="keepJob",
    response_model=LeaseAnswer,
    response_model_exclude_none=True,
)
def heartbeat(job_service: JobServiceOf, caller: CallerDep, job: str, body: HeartbeatRequest) -> Any:
    """Extend a lease; 409 if it is lost, and then the worker stops working on the job."""
    _mine(job_service, caller, job, Role.WRITER)
    lease_s = job_service.heartbeat(job, body.epoch, body.progress)
    return {
        "lease_s": lease_s,
        "tables": job_service.states(job, body.epoch, caller.name) if body.tables else None,
    }


@router.post("/jobs/{job}/publish", operation_id="publishJob", response_model=PublishAnswer)
def publish(
    job_service: JobServiceOf, catalog: CatalogDep, caller: CallerDep, job: str, body: PublishRequest
) -> Any:
    """Make the batch visible and end its job, in one SQL transaction. Can be repeated.

    409 LostLeaseException: the job is not leased under this epoch, and the worker stops working on it. Any
    other 409: a table has changed, nothing was published, and the worker must process the batch again.
    """
    warehouse = _mine(job_service, caller, job, Role.WRITER).warehouse
    work: CommitSource
    if body.table_changes is not None and body.transaction is None:
        work = SentCommits([table_commit(change) for change in body.table_changes])
    elif body.transaction is not None and body.table_changes is None:
        refuse_invisible(caller, catalog.transactions.newest(warehouse, body.transaction))
        work = OpenTransaction(body.transaction)
    else:
        raise Invalid("Send either table-changes or transaction")
    return {"number": job_service.publish(job, body.epoch, work, caller.name, body.metrics)}


@router.post("/jobs/{job}/fail", operation_id="failJob", status_code=204)
def fail(job_service: JobServiceOf, caller: CallerDep, job: str, body: FailRequest) -> None:
    """Give a job back; it will be tried again."""
    _mine(job_service, caller, job, Role.WRITER)
    job_service.fail(job, body.epoch, body.error, retry=body.retry)


@router.get("/jobs/{job}", operation_id="loadJob", response_model=JobAnswer)
def load_job(job_service: JobServiceOf, caller: CallerDep, job: str) -> Any:
    """Load one job with its progress."""
    return _shown(_mine(job_service, caller, job, Role.READER))


@router.get("/{warehouse}/jobs", operation_id="listJobs", response_model=JobList)
def list_jobs(
    jobs: JobsOf, warehouse: ReaderWarehouse, limit: Annotated[int, Query(ge=1, le=1000)] = 100
) -> Any:
    """List the newest jobs of a warehouse."""
    return {"jobs": [_light(row) for row in jobs.newest(warehouse, limit)]}


def _shown(job: Job) -> dict[str, Any]:
    names = JobAnswer.model_fields
    return _light({name: getattr(job, name) for name in names})


def _light(row: dict[str, Any]) -> dict[str, Any]:
    shown = {name: row[name] for name in JobAnswer.model_fields}
    return shown | {"progress": orjson.loads(row["progress"])}


@dataclass(frozen=True, slots=True)
class SentCommits:
    """The commits of all tables, as the request contains them."""

    commits: Sequence[TableCommit]

    def snapshots(self, catalog: Catalog, warehouse: str) -> Snapshots:
        return {
            (tuple(commit.identifier.namespace.levels), commit.identifier.name): commit.added_snapshots[-1]
            for commit in self.commits
            if commit.added_snapshots
        }

    def rows(self, catalog: Catalog, warehouse: str) -> Mapping[TableRef, Snapshot]:
        return {
            (tuple(commit.identifier.namespace.levels), commit.identifier.name): counted(update["snapshot"])
            for commit in self.commits
            if commit.added_snapshots
            for update in commit.updates
            if update.get("action") == "add-snapshot"
        }

    def publish(
        self, catalog: Catalog, warehouse: str, principal: str, in_transaction: InTransaction
    ) -> int | None:
        return publish_commits(catalog, warehouse, principal, self.commits, in_transaction)


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """The name of an open transaction, in which a MERGE has staged its commits."""

    name: str

    def snapshots(self, catalog: Catalog, warehouse: str) -> Snapshots:
        transaction = catalog.open_transaction(warehouse, self.name)
        return {
            (tuple(Namespace.from_key(item.namespace).levels), item.name): _snapshot_id(catalog, item)
            for item in transactions.all_staged(catalog, transaction)
        }

    def rows(self, catalog: Catalog, warehouse: str) -> Mapping[TableRef, Snapshot]:
        transaction = catalog.open_transaction(warehouse, self.name)
        found = {}
        for item in transactions.all_staged(catalog, transaction):
            snapshot_id = _snapshot_id(catalog, item)
            if snapshot_id is None or item.after is None:
                continue
            metadata = catalog.documents.parsed(item.after)
            snapshot = next(one for one in metadata["snapshots"] if one["snapshot-id"] == snapshot_id)
            found[tuple(Namespace.from_key(item.namespace).levels), item.name] = counted(snapshot)
        return found

    def publish(
        self, catalog: Catalog, warehouse: str, principal: str, in_transaction: InTransaction
    ) -> int | None:
        return transactions.publish(catalog, warehouse, principal, self.name, in_transaction)[0]


def _snapshot_id(catalog: Catalog, item: StagedChange) -> int | None:
    after = item.after
    if after is None or after.text is None or item.kind != "table":
        return None
    metadata = catalog.documents.parsed(after)
    found: int | None = metadata.get("current-snapshot-id")
    return found if found != -1 else None
