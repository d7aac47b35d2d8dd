"""Resync of a table over HTTP: begin, end, abort, and how far it is."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, Field

from catalog.api.dependencies import ReaderWarehouse, TableDep, WriterWarehouse
from catalog.names import Identifier
from ingest.change import TableName
from ingest.landing.resync import ResyncService
from ingest.store.resyncs import Resync, State

router = APIRouter(prefix="/lake/v1", tags=["Sources"])
_PATH = "/{warehouse}/namespaces/{namespace}/tables/{table}/resync"


class ResyncState(BaseModel):
    table: str
    generation: int = Field(description="Counts the resyncs of the table")
    state: State = Field(
        description="open: rows are expected; ending: they are being landed; published; aborted; "
        "expired: given up, with the reason"
    )
    began_ms: int = Field(serialization_alias="began-ms")
    changed_ms: int = Field(serialization_alias="changed-ms", description="When the state was set")
    waiting_events: int = Field(
        serialization_alias="waiting-events", description="Rows and changes that wait for the end"
    )
    waiting_bytes: int = Field(serialization_alias="waiting-bytes")
    reason: str | None = Field(None, description="Why it was given up")
    number: int | None = Field(None, description="Of the publish that replaced the rows")


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
    and changes of the table are acknowledged and wait, and so does each source transaction that touches it.
    Readers see the table as it is.
    """
    return _shown(service, warehouse, service.begin(warehouse, _name(identifier)))


@router.post(_PATH + "/end", operation_id="endResync", response_model=ResyncState, responses=_NOT_POSSIBLE)
def end_resync(service: ServiceOf, warehouse: WriterWarehouse, identifier: TableDep) -> Any:
    """All rows have been sent and acknowledged: they replace the rows of the table, in one publish. May be
    repeated.
    """
    return _shown(service, warehouse, service.end(warehouse, _name(identifier)))


@router.post(
    _PATH + "/abort", operation_id="abortResync", response_model=ResyncState, responses=_NOT_POSSIBLE
)
def abort_resync(service: ServiceOf, warehouse: WriterWarehouse, identifier: TableDep) -> Any:
    """Give a resync up: what has waited lands as ordinary changes, and nothing is deleted."""
    return _shown(service, warehouse, service.abort(warehouse, _name(identifier)))


@router.get(_PATH, operation_id="loadResync", response_model=ResyncState)
def load_resync(service: ServiceOf, warehouse: ReaderWarehouse, identifier: TableDep) -> Any:
    """The last resync of the table."""
    return _shown(service, warehouse, service.load(warehouse, _name(identifier)))


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


def _name(identifier: Identifier) -> TableName:
    return (*identifier.namespace.levels, identifier.name)
