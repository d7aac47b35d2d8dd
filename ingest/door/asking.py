"""What people and programs ask the door: GET /status, POST /flush, GET /lake/v1/{warehouse}/landed."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from catalog.errors import Invalid
from catalog.names import check_warehouse_name
from ingest.change import TableName
from ingest.door import flushing, standing
from ingest.door.answers import parse_token, shown
from ingest.door.room import Room

FLUSH_TABLES_MAX = 1000
# Their form is Iceberg's, which whoever puts the description together adds.
ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"description": "A parameter is wrong."},
    401: {"description": "No caller, or a token that is wrong or over."},
    403: {"description": "The caller may not do this."},
    404: {"description": "There is no such warehouse."},
    503: {"description": "The database does not answer; try again later."},
}

WarehouseParameter = Annotated[str | None, Query(description="The warehouse; main if left out")]


class FlushRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")
    tables: list[str | list[str]] | None = Field(
        None,
        max_length=FLUSH_TABLES_MAX,
        description="Only these: each a dotted name, or its levels and its name; all if left out",
    )
    wait: bool = Field(True, description="Answer when everything is visible")
    timeout_s: float = Field(30.0, ge=0, description="Wait no longer than this")


class SnapshotAnswer(BaseModel):
    table: str
    number: int = Field(description="Of the commit in the warehouse's history")
    mirror_snapshot_id: int | None = Field(alias="mirror-snapshot-id")
    changes_snapshot_id: int | None = Field(alias="changes-snapshot-id")
    commit_timestamp: int = Field(alias="commit-timestamp", description="Milliseconds since 1970")


class FlushAnswer(BaseModel):
    success: bool
    committed: bool = Field(description="All that was pending is visible")
    batchesFlushed: int  # noqa: N815 - as the protocol has it
    eventsFlushed: int  # noqa: N815
    bytesWritten: int  # noqa: N815
    paths: list[str] = Field(description="The tables that were published")
    snapshots: list[SnapshotAnswer]
    durationMs: int  # noqa: N815
    usedFallback: bool  # noqa: N815
    error: str | None = None


class LandedAnswer(BaseModel):
    token: str
    visible: bool = Field(description="Everything up to the token can be read by all engines")
    waiting: list[str] = Field(description="Tables that have changes up to the token on their way")


def asking_router(room: Room) -> APIRouter:
    router = APIRouter(tags=["Changes"])

    def reading(request: Request, warehouse: str | None) -> str:
        name = check_warehouse_name(warehouse or room.settings.default_warehouse)
        caller = room.access.reader(request.headers.get("authorization"), name)
        request.scope["calve.caller"] = caller.name
        return name

    @router.get("/status", operation_id="ingestStatus", response_model=dict[str, Any], responses=ERRORS)
    async def status(request: Request, warehouse: WarehouseParameter = None) -> Any:
        """How full the journal is, who is connected, and how far each table and source has landed."""
        request.scope["calve.operation"] = "ingestStatus"
        return await room.ask(lambda: standing.whole(room, reading(request, warehouse)))

    @router.post(
        "/flush",
        operation_id="flush",
        response_model=FlushAnswer,
        response_model_exclude_unset=True,
        responses=ERRORS,
    )
    async def flush(
        request: Request,
        body: Annotated[FlushRequest | None, Body()] = None,
        warehouse: WarehouseParameter = None,
    ) -> Any:
        """Cut what is pending now, and wait until it is visible."""
        request.scope["calve.operation"] = "flush"
        wanted = body or FlushRequest.model_validate({})
        name = check_warehouse_name(warehouse or room.settings.default_warehouse)
        authorization = request.headers.get("authorization")
        caller = await room.ask(lambda: room.access.writer(authorization, name))
        request.scope["calve.caller"] = caller.name
        tables = None if wanted.tables is None else {_table(room, given) for given in wanted.tables}
        timeout_s = min(wanted.timeout_s, room.settings.commit_wait_s_max)
        return await flushing.flush(room, name, tables, wait=wanted.wait, timeout_s=timeout_s)

    @router.get(
        "/lake/v1/{warehouse}/landed", operation_id="landed", response_model=LandedAnswer, responses=ERRORS
    )
    async def landed(
        request: Request,
        warehouse: str,
        token: Annotated[str, Query(description="What an answer of /cdc gave")],
        wait_s: Annotated[float, Query(alias="wait-s", ge=0, description="Wait so long for it")] = 0,
    ) -> Any:
        """Whether everything up to a token is visible."""
        request.scope["calve.operation"] = "landed"
        name = await room.ask(lambda: reading(request, warehouse))
        named, journal_id = parse_token(token)
        if named != name:
            raise Invalid(f"the token is of the warehouse {named}")
        waiting = await room.ask(lambda: room.landing.waiting_up_to(name, journal_id))
        if waiting and wait_s > 0:
            waiting = await _wait(room, name, journal_id, min(wait_s, room.settings.commit_wait_s_max))
        return {"token": token, "visible": not waiting, "waiting": sorted(map(shown, waiting))}

    return router


async def _wait(room: Room, warehouse: str, journal_id: int, timeout_s: float) -> list[TableName]:
    pending = await room.ask(lambda: room.journal.pending(warehouse))
    until = {row.table: min(row.last_id, journal_id) for row in pending if row.first_id <= journal_id}
    await room.arrivals.wait(warehouse, until, timeout_s)
    return list(await room.ask(lambda: room.landing.waiting_up_to(warehouse, journal_id)))


def _table(room: Room, given: str | list[str]) -> TableName:
    levels = tuple(given.split(".")) if isinstance(given, str) else tuple(given)
    if not levels or not all(levels):
        raise Invalid("tables must hold names such as inventory.customers")
    return levels if len(levels) > 1 else (*room.settings.default_namespace, *levels)
