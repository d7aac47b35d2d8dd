"""Rebuild a mirror from its changes table, over HTTP."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Request
from pydantic import BaseModel, ConfigDict, Field

from catalog.api.dependencies import TableDep, WriterWarehouse
from ingest.landing.rebuild import Rebuilds

router = APIRouter(prefix="/lake/v1", tags=["Sources"])


class RebuildRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")
    reason: str | None = Field(None, max_length=1000, description="Stored and shown with the rebuild")


class RebuildState(BaseModel):
    """The rebuild that is due or was tried last, and the one that was published last."""

    state: str = Field(description="none, requested, running or failed")
    why: str | None = None
    requested_ms: int | None = Field(None, serialization_alias="requested-ms")
    attempts: int = Field(0, description="How often a worker has begun it; it is given up after four times")
    progress: dict[str, Any] | None = Field(
        None, description="Progress of the running job, such as `changes-read`"
    )
    error: str | None = Field(None, description="Why it cannot be done, or why the last attempt failed")
    rebuilt_ms: int | None = Field(
        None, serialization_alias="rebuilt-ms", description="When the last one was published"
    )
    rebuilt_number: int | None = Field(None, serialization_alias="rebuilt-number")
    rebuilt_why: str | None = Field(None, serialization_alias="rebuilt-why")


class MirrorState(BaseModel):
    """The state of the mirror of a table."""

    key: list[str] | None = Field(None, description="The key in use; null if nothing has landed")
    key_reason: str | None = Field(None, serialization_alias="key-reason", description="Why it is the key")
    doubt: str | None = Field(None, description="Why the mirror may be wrong")
    gap: str | None = Field(
        None, description="Why the changes table lacks changes, so that it cannot be rebuilt"
    )
    rebuild: RebuildState = Field(default_factory=lambda: RebuildState.model_validate({"state": "none"}))


def _rebuilds(request: Request) -> Rebuilds:
    rebuilds: Rebuilds = request.app.state.ingest.rebuilds
    return rebuilds


RebuildsOf = Annotated[Rebuilds, Depends(_rebuilds)]


@router.post(
    "/{warehouse}/namespaces/{namespace}/tables/{table}/rebuild",
    operation_id="rebuildTable",
    status_code=202,
    response_model=RebuildState,
    responses={409: {"description": "The changes table does not have every change of the mirror."}},
)
def rebuild_table(
    rebuilds: RebuildsOf,
    warehouse: WriterWarehouse,
    identifier: TableDep,
    body: Annotated[RebuildRequest | None, Body()] = None,
) -> Any:
    """Rebuild the mirror from its changes table, with the current key, in one commit. Readers see the old
    rows until then; changes are acknowledged and land afterwards. `GET …/ingest` shows the progress.
    """
    reason = body.reason if body is not None else None
    table = identifier.parts
    rebuilds.request(warehouse, table, reason or "it was requested")
    return rebuilds.state(warehouse, table)["rebuild"]
