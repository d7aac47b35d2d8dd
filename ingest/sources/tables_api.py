"""Control the landing of a table over HTTP: pause, resume, skip changes that cannot land."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Request
from pydantic import BaseModel, ConfigDict, Field

from catalog.api.dependencies import TableDep, WriterWarehouse
from ingest.change import TableName
from ingest.sources.api import PauseRequest, StoreOf
from ingest.sources.skipping import Skipping
from ingest.sources.store import SourceStore

router = APIRouter(prefix="/lake/v1", tags=["Sources"])
_PATH = "/{warehouse}/namespaces/{namespace}/tables/{table}/ingest"


class TableControl(BaseModel):
    table: str
    state: str = Field(description="running or paused")
    reason: str | None = Field(None, description="Why it is paused")
    paused_ms: int | None = Field(None, serialization_alias="paused-ms", description="Since when")


class SkipRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    up_to: int | None = Field(
        None,
        alias="up-to",
        ge=1,
        le=2**62,
        description="The journal id up to which changes are skipped; the first that waits if left out",
    )


class Skipped(BaseModel):
    skipped: int = Field(description="Events that became dead letters")
    landed_id: int = Field(
        serialization_alias="landed-id", description="The journal id after which the table continues"
    )


def _skipping(request: Request) -> Skipping:
    ingest = request.app.state.ingest
    return Skipping(ingest.journal, ingest.tables, ingest.sources)


SkippingOf = Annotated[Skipping, Depends(_skipping)]


@router.post(_PATH + "/pause", operation_id="pauseTable", response_model=TableControl)
def pause_table(
    store: StoreOf,
    warehouse: WriterWarehouse,
    identifier: TableDep,
    body: Annotated[PauseRequest | None, Body()] = None,
) -> Any:
    """Pause a table: its changes are acknowledged and wait, as does each source transaction that contains it.
    Other tables continue. A batch that is being landed is finished.
    """
    table = identifier.parts
    store.pause_table(warehouse, table, (body or PauseRequest.model_validate({})).reason)
    return _shown(store, warehouse, table)


@router.post(_PATH + "/resume", operation_id="resumeTable", response_model=TableControl)
def resume_table(store: StoreOf, warehouse: WriterWarehouse, identifier: TableDep) -> Any:
    """Resume a table: its waiting changes land."""
    table = identifier.parts
    store.resume_table(warehouse, table)
    return _shown(store, warehouse, table)


@router.post(
    _PATH + "/skip",
    operation_id="skipChanges",
    response_model=Skipped,
    responses={409: {"description": "The table is not paused, or a batch of it is being landed."}},
)
def skip_changes(
    skipping: SkippingOf,
    warehouse: WriterWarehouse,
    identifier: TableDep,
    body: Annotated[SkipRequest | None, Body()] = None,
) -> Any:
    """Turn the oldest waiting changes into dead letters, so that later changes can land. The table must be
    paused. The letters can be fixed and replayed.
    """
    up_to = body.up_to if body is not None else None
    skipped, landed_id = skipping.skip(warehouse, identifier.parts, up_to)
    return {"skipped": skipped, "landed_id": landed_id}


def _shown(store: SourceStore, warehouse: str, table: TableName) -> dict[str, Any]:
    pause = store.pauses(warehouse).tables.get(table)
    return {
        "table": ".".join(table),
        "state": "running" if pause is None else "paused",
        "reason": None if pause is None else pause.reason,
        "paused_ms": None if pause is None else pause.since_ms,
    }
