"""Sources over HTTP: list them, set their rules, pause and resume them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from catalog.api.dependencies import AdminWarehouse, ReaderWarehouse, WriterWarehouse
from catalog.errors import Invalid
from catalog.names import decode_segment
from ingest.journal.encoded_request import name_key
from ingest.settings import TypeChanges
from ingest.sources.overview import SourceFacts, SourceOverview
from ingest.sources.rules import SourceRules
from ingest.sources.store import NoSuchSource, SourceStore
from ingest.store.tables import LandingTables

router = APIRouter(prefix="/lake/v1", tags=["Sources"])
NAME_CHARS_MAX = 255
_EXAMPLE: Any = {
    "include": ["public.*"],
    "exclude": ["*.tmp_*"],
    "route": [{"from": "public.*", "to": "shop.*"}],
    "drop-columns": {"*": ["password"]},
    "hash-columns": {"public.customers": ["email"]},
}


class Route(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    from_: str = Field(alias="from", description="A pattern of table names")
    to: str = Field(description="The table in the warehouse; each * is replaced by what it matches in `from`")


class Rules(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True, json_schema_extra={"example": _EXAMPLE})
    include: list[str] = Field([], description="Only these tables: namespace.table, where * is any text")
    exclude: list[str] = Field([], description="Not these tables")
    route: list[Route] = Field([], description="Other names for tables; the first that matches is used")
    drop_columns: dict[str, list[str]] = Field(
        {}, alias="drop-columns", description="Columns that are not stored, by patterns of tables"
    )
    hash_columns: dict[str, list[str]] = Field(
        {}, alias="hash-columns", description="Columns of which only a salted hash is stored"
    )
    type_changes: TypeChanges | None = Field(
        None, alias="type-changes", description="Of tables that do not have this setting themselves"
    )


class PauseRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")
    reason: str = Field("paused by a request", min_length=1, max_length=1000, description="Shown in /status")


class SourceNumbers(BaseModel):
    count: int = Field(description="Events that were received")
    last: int = Field(description="The highest number")
    gaps: int = Field(description="Ranges of numbers that are missing")


class SourceTable(BaseModel):
    table: str
    position: str = Field(description="The newest position that is visible")
    time_ms: int | None = Field(serialization_alias="time-ms", description="Its time at the source")
    landed_ms: int = Field(serialization_alias="landed-ms")


class Source(BaseModel):
    """A source. More fields may be added."""

    name: str
    state: str = Field(description="running or paused")
    reason: str | None = Field(None, description="Why it is paused")
    paused_ms: int | None = Field(None, serialization_alias="paused-ms", description="Since when")
    rules: Rules | None = None
    last_position: str | None = Field(None, serialization_alias="last-position")
    last_time_ms: int | None = Field(None, serialization_alias="last-time-ms")
    last_landed_ms: int | None = Field(None, serialization_alias="last-landed-ms")
    pending_events: int = Field(
        0, serialization_alias="pending-events", description="Acknowledged and not visible yet"
    )
    numbers: SourceNumbers | None = Field(None, description="If the source numbers its events")
    tables: list[SourceTable] = Field(description="Where its changes are visible")


class SourceList(BaseModel):
    sources: list[Source]
    next_page_token: str | None = Field(None, serialization_alias="next-page-token")


def _store(request: Request) -> SourceStore:
    store: SourceStore = request.app.state.ingest.sources
    return store


def _overview(request: Request) -> SourceOverview:
    ingest = request.app.state.ingest
    tables: LandingTables = ingest.tables
    return SourceOverview(ingest.journal, tables, ingest.sources)


async def _source(
    source: Annotated[str, Path(min_length=1, description="The name of a source, percent-encoded")],
) -> str:
    name = decode_segment(source)
    if len(name) > NAME_CHARS_MAX:
        raise Invalid(f"The name of a source has at most {NAME_CHARS_MAX} characters")
    return name


StoreOf = Annotated[SourceStore, Depends(_store)]
OverviewOf = Annotated[SourceOverview, Depends(_overview)]
SourceOf = Annotated[str, Depends(_source)]
_PATH = "/{warehouse}/sources/{source}"


@router.get("/{warehouse}/sources", operation_id="listSources", response_model=SourceList)
def list_sources(
    overview: OverviewOf,
    warehouse: ReaderWarehouse,
    page_token: Annotated[str | None, Query(alias="pageToken")] = None,
    page_size: Annotated[int, Query(alias="pageSize", ge=1, le=1000)] = 100,
) -> Any:
    """List the sources by name: those that have rules, are paused, or have sent changes."""
    found = [facts for name, facts in overview.all(warehouse).items() if name > (page_token or "")]
    page = [_shown(facts) for facts in found[:page_size]]
    return {"sources": page, "next_page_token": page[-1]["name"] if len(found) > page_size else None}


@router.get(_PATH, operation_id="loadSource", response_model=Source)
def load_source(overview: OverviewOf, warehouse: ReaderWarehouse, source: SourceOf) -> Any:
    """Load one source: its rules, and how far it has landed."""
    return _shown(_known(overview, warehouse, source))


@router.put(_PATH, operation_id="setSource", response_model=Source)
def set_source(
    store: StoreOf, overview: OverviewOf, warehouse: AdminWarehouse, source: SourceOf, body: Rules
) -> Any:
    """Set which tables and columns of a source are stored, from the next request on; other server processes
    follow within a second. The source need not have sent anything yet.
    """
    store.set_rules(warehouse, source, SourceRules.of(body.model_dump(by_alias=True)))
    return _shown(_known(overview, warehouse, source))


@router.delete(_PATH, operation_id="deleteSource", status_code=204)
def delete_source(store: StoreOf, warehouse: AdminWarehouse, source: SourceOf) -> None:
    """Delete the rules of a source: all its tables and columns are stored from then on."""
    store.delete_rules(warehouse, source)


@router.post(_PATH + "/pause", operation_id="pauseSource", response_model=Source)
def pause_source(
    store: StoreOf,
    overview: OverviewOf,
    warehouse: WriterWarehouse,
    source: SourceOf,
    body: Annotated[PauseRequest | None, Body()] = None,
) -> Any:
    """Pause a source: its changes are acknowledged and stored in the journal, and none of them lands until it
    is resumed. A table that other sources feed too lands up to the first change that waits. A batch that is
    being landed is finished.
    """
    store.pause_source(warehouse, source, (body or PauseRequest.model_validate({})).reason)
    return _shown(_known(overview, warehouse, source))


@router.post(_PATH + "/resume", operation_id="resumeSource", response_model=Source)
def resume_source(store: StoreOf, overview: OverviewOf, warehouse: WriterWarehouse, source: SourceOf) -> Any:
    """Resume a source: its waiting changes land."""
    facts = _known(overview, warehouse, source)
    store.resume_source(warehouse, source)
    facts.pause = None
    return _shown(facts)


def _known(overview: SourceOverview, warehouse: str, source: str) -> SourceFacts:
    found = overview.all(warehouse).get(name_key(source))
    if found is None:
        raise NoSuchSource(f"Source does not exist: {source}")
    return found


def _shown(facts: SourceFacts) -> dict[str, Any]:
    marks = sorted(facts.watermarks.items())
    newest = max((mark for _, mark in marks), key=lambda mark: mark.position, default=None)
    pause = facts.pause
    return {
        "name": facts.name,
        "state": "running" if pause is None else "paused",
        "reason": None if pause is None else pause.reason,
        "paused_ms": None if pause is None else pause.since_ms,
        "rules": None if facts.rules is None else facts.rules.as_json(),
        "last_position": None if newest is None else newest.position,
        "last_time_ms": None if newest is None else newest.time_ms,
        "last_landed_ms": max((mark.updated_ms for _, mark in marks), default=None),
        "pending_events": facts.pending_events,
        "numbers": facts.numbers,
        "tables": [
            {
                "table": ".".join(table),
                "position": mark.position,
                "time_ms": mark.time_ms,
                "landed_ms": mark.updated_ms,
            }
            for table, mark in marks
        ],
    }
