"""The history of a warehouse as ordered events without gaps. A long poll waits for the next one."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, Field

from catalog.api.dependencies import CatalogDep, ReaderWarehouse
from catalog.api.pagination import INTEGER_MAX, Page
from catalog.names import Identifier
from catalog.services.catalog import Catalog
from catalog.shutdown import stopping

router = APIRouter(tags=["History"])

POLL_S = 0.05
WAIT_S_MAX = 30
EVENTS_MAX = 1000


class ChangeAnswer(BaseModel):
    operation: str
    kind: str
    namespace: list[str]
    name: str | None
    uuid: str
    version: int
    metadata_location: str | None = Field(serialization_alias="metadata-location")
    detail: dict[str, Any]


class EventAnswer(BaseModel):
    number: int
    time_ms: int = Field(serialization_alias="time-ms")
    principal: str
    changes: list[ChangeAnswer]


class EventList(BaseModel):
    events: list[EventAnswer]
    next: int = Field(description="Pass this as `after` to go on")
    head: int = Field(description="The number of the newest commit")


@router.get("/{warehouse}/events", operation_id="listEvents", response_model=EventList)
async def list_events(
    catalog: CatalogDep,
    warehouse: ReaderWarehouse,
    after: Annotated[int, Query(ge=0, le=2**62)] = 0,
    limit: Annotated[int, Query(ge=1, le=EVENTS_MAX)] = 100,
    wait_s: Annotated[float, Query(ge=0, le=WAIT_S_MAX, description="Wait this long for a new event")] = 0,
) -> Any:
    """Commits after a number, in order. Continue with `next`, also after a restart. All commits have been
    read when `next` equals `head`.
    """
    until = time.monotonic() + wait_s
    while True:
        head = (await run_in_threadpool(catalog.entries.number, warehouse) or (0, 0))[0]
        if head > after or time.monotonic() >= until or stopping.is_set():
            break
        await asyncio.sleep(POLL_S)
    rows = await run_in_threadpool(catalog.history.events, warehouse, after, limit) if head > after else []
    events = grouped(rows)
    last = events[-1]["number"] if events else after
    return {"events": events, "next": last, "head": head}


def table_history(catalog: Catalog, warehouse: str, identifier: Identifier, page: Page) -> dict[str, Any]:
    """The history of one name, newest first, including earlier tables of that name."""
    (before,) = page.after(INTEGER_MAX)
    key, name = identifier.namespace.key, identifier.name
    rows = catalog.history.versions(warehouse, key, name, before, page.rows_max)
    shown, token = page.cut(rows, lambda row: (row["number"],))  # a commit has one row for each name
    return {"events": grouped(shown), "next_page_token": token}


def grouped(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Group the rows by number: a commit of several tables is one event."""
    events: list[dict[str, Any]] = []
    for row in rows:
        if not events or events[-1]["number"] != row["number"]:
            head = {"number": row["number"], "time_ms": row["time_ms"], "principal": row["principal"]}
            events.append(head | {"changes": []})
        events[-1]["changes"].append(
            {
                "operation": row["operation"],
                "kind": row["kind"],
                "namespace": row["namespace"].split("\x1f"),
                "name": row["name"] or None,
                "uuid": row["uuid"],
                "version": row["version"],
                "metadata_location": row["metadata_location"],
                "detail": row["detail"],
            }
        )
    return events
