"""Verification of mirrors over HTTP."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from catalog.api.dependencies import ReaderWarehouse, TableDep, WriterWarehouse
from ingest.verification.service import VerificationService

router = APIRouter(prefix="/lake/v1", tags=["Verification"])
_TABLE = "/{warehouse}/namespaces/{namespace}/tables/{table}"
_SUM_DIGITS_MAX = 60
_BUCKETS_MAX = 256
Bucket = Annotated[str, Field(pattern="^[0-9a-f]{2}$")]
Sum = Annotated[str, Field(pattern=f"^[0-9]{{1,{_SUM_DIGITS_MAX}}}$")]
Count = Annotated[int, Field(ge=0, le=2**62)]


class VerifiedThrough(BaseModel):
    number: int = Field(description="The number of the warehouse at which the mirror was right")
    time_ms: int = Field(alias="time-ms")
    positions: dict[str, str] = Field(description="For each source, the position that had landed at least")


class DifferingKey(BaseModel):
    kind: str = Field(
        description="`missing` from the mirror, `unexpected` in it, `changed`, or `repeated`: several rows"
    )
    key: dict[str, Any]
    columns: list[str] = Field(description="The columns that differ, if the row is `changed`")


class VerifiedColumn(BaseModel):
    name: str
    type: Any = Field(description="The type in Iceberg's form")


class VerificationAnswer(BaseModel):
    state: str = Field(description="unverified, requested, running, equal, differs, failed or not-verifiable")
    key: list[str] = Field(description="The key columns; empty if the table has none")
    columns: list[VerifiedColumn] = Field(description="The columns that come from the source")
    reason: str | None = Field(None, description="Why it failed, or cannot be verified")
    verified_through: VerifiedThrough | None = Field(
        None, alias="verified-through", description="The newest check that found no difference"
    )
    checked: dict[str, Any] | None = Field(None, description="The newest check")
    differences: dict[str, int] = Field(description="How many rows differ, of each kind")
    keys: list[DifferingKey] = Field(description="The rows that differ; at most 1,000")
    source: dict[str, Any] | None = Field(
        None, description="The comparison with checksums of the source that were posted"
    )
    mend: dict[str, str] | None = Field(None, description="The request that repairs the differences")
    kept_checksums: dict[str, Any] | None = Field(
        None,
        alias="kept-checksums",
        description="Checksums that each batch brings up to date: `kept` through a number, `unknown` with "
        "the reason, or `not-kept`; and how the newest check found them",
    )
    checksums: dict[str, Any] | None = Field(None, description="Rows and sum of hashes of each bucket")


class PostedChecksums(BaseModel):
    """Checksums of a table at its source, at a position. `calve verify --sql` prints SQL for them."""

    model_config = ConfigDict(extra="forbid")
    source: str = Field(min_length=1, max_length=1000, description="The source, as /status names it")
    position: Annotated[int, Field(ge=0, lt=2**63)] | Annotated[str, Field(min_length=1, max_length=1000)] = (
        Field(description="The sequence number of a native event, or a position as /status shows it")
    )
    columns: list[str] = Field(min_length=1, max_length=10_000, description="The columns that were hashed")
    count: Count
    hash: Sum | None = Field(None, description="The sum of the hashes of all rows")
    buckets: dict[Bucket, tuple[Count, Sum]] | None = Field(
        None, max_length=_BUCKETS_MAX, description="Rows and sum of hashes of each bucket that has rows"
    )


def _service(request: Request) -> VerificationService:
    service: VerificationService = request.app.state.verification
    return service


ServiceOf = Annotated[VerificationService, Depends(_service)]


@router.get(
    _TABLE + "/verification",
    operation_id="loadVerification",
    response_model=VerificationAnswer,
    response_model_exclude_none=True,
)
def load_verification(
    service: ServiceOf,
    warehouse: ReaderWarehouse,
    identifier: TableDep,
    checksums: Annotated[bool, Query(description="Also the checksums of the buckets")] = False,
) -> Any:
    """Load the result of the last verification: up to which position the mirror is verified, and which rows
    differ.
    """
    return service.of_table(warehouse, identifier, checksums=checksums)


@router.post(
    _TABLE + "/verify",
    operation_id="verifyTable",
    response_model=VerificationAnswer,
    response_model_exclude_none=True,
    status_code=202,
)
def verify_table(service: ServiceOf, warehouse: WriterWarehouse, identifier: TableDep) -> Any:
    """Request that a Spark worker compares the mirror with the fold of its changes table. Nothing is
    repaired.
    """
    return service.request(warehouse, identifier)


@router.post(
    _TABLE + "/verification",
    operation_id="postChecksums",
    response_model=VerificationAnswer,
    response_model_exclude_none=True,
    status_code=202,
)
def post_checksums(
    service: ServiceOf, warehouse: WriterWarehouse, identifier: TableDep, body: PostedChecksums
) -> Any:
    """Compare the table with checksums of its source at a position, once the position has landed."""
    return service.post(warehouse, identifier, body.model_dump())
