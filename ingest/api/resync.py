"""Resync a table over HTTP: begin, end, abort, and show the progress."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, Field

from catalog.api.dependencies import ReaderWarehouse, TableDep, WriterWarehouse
from ingest.landing.resync import ResyncService
from ingest.store.resyncs import Resync, State

router = APIRouter(prefix="/lake/v1", tags=["Sources"])
_PATH = "/{warehouse}/namespaces/{namespace}/tables/{table}/resync"


class ResyncState(BaseModel):
    table: str
    generation: int = Field(description="The number of the resync of this table")
    state: State = Field(
        description="open: rows are expected; ending: they are being landed; published; aborted; "
        "expired: given up, with the reason"
    )
    began_ms: int = Field(serialization_alias="began-ms")
    changed_ms: int = Field(serialization_alias="changed-ms", description="When the state was set")
    waiting_events: int = Field(
        serialization_alias="waiting-events",
        description="Rows and changes that wait for the end of the resync",
    )
    waiting_bytes: int = Field(serialization_alias="waiting-bytes")
    reason: str | None = Field(None, description="Why it was aborted or expired")
    number: int | None = Field(None, description="The number of the publish that replaced the rows")


def _service(request: Request) -> ResyncService:
    service: ResyncService = request.app.state.ingest.resync
    return service


ServiceOf = Annotated[ResyncService, Depends(_service)]
_NOT_POSSIBLE: dict[int | str, dict[str, Any]] = {
    409: {"description": "The state of the table or of its resync does not allow it."}
}


@router.post(_PATH, operation_id="beginResync", response_model=ResyncState, responses=_NOT_POSSIBLE)
def begin_resync(service: ServiceOf, warehouse: WriterWarehouse, identifier: TableDep) -> Any:
    """Begin a resync. Then read the table at its source, and send all of its rows again. Until the end, rows
    and changes of the table are acknowledged and wait, and so does each source transaction that contains the
    table. Readers see the old rows.
    """
    return _shown(service, warehouse, service.begin(warehouse, identifier.parts))


@router.post(_PATH + "/end", operation_id="endResync", response_model=ResyncState, responses=_NOT_POSSIBLE)
def end_resync(service: ServiceOf, warehouse: WriterWarehouse, identifier: TableDep) -> Any:
    """End a resync after all rows have been sent and acknowledged: they replace the rows of the table, in one
    publish. May be repeated.
    """
    return _shown(service, warehouse, service.end(warehouse, identifier.parts))


@router.post(
    _PATH + "/abort", operation_id="abortResync", response_model=ResyncState, responses=_NOT_POSSIBLE
)
def abort_resync(service: ServiceOf, warehouse: WriterWarehouse, identifier: TableDep) -> Any:
    """Abort a resync: the changes that waited land as ordinary changes, and nothing is deleted."""
    return _shown(service, warehouse, service.abort(warehouse, identifier.parts))


@router.get(_PATH, operation_id="loadResync", response_model=ResyncState)
def load_resync(service: ServiceOf, warehouse: ReaderWarehouse, identifier: TableDep) -> Any:
    """Load the last resync of the table."""
    return _shown(service, warehouse, service.load(warehouse, identifier.parts))


def _shown(service: ResyncService, warehouse: str, resync: Resync) -> dict[str, Any]:
    events, stored_bytes = service.progress(warehouse, resync)
    return {
        "table": ".".join(resync.table),
        "generation": resync.generation,
        "state": resync.state,
        "began_ms": resync.began_ms,
        "changed_ms": resync.changed_ms,
        "waiting_events": events,
        "waiting_bytes": stored_bytes,
        "reason": resync.reason,
        "number": resync.number,
    }
