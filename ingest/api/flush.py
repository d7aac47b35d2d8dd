"""POST /flush and GET /lake/v1/{warehouse}/landed: make pending changes visible, or check whether
they are.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Annotated, Any

from fastapi import APIRouter, Body, Query
from pydantic import BaseModel, ConfigDict, Field

from catalog.errors import Invalid
from ingest.api.context import ApiContext, ContextOf
from ingest.api.dependencies import ReadablePath, Writable
from ingest.api.results import ERRORS, SnapshotAnswer, dotted, parse_token, snapshots_response
from ingest.change import TableName

router = APIRouter(tags=["Changes"])

FLUSH_TABLES_MAX = 1000


class FlushRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")
    tables: list[str | list[str]] | None = Field(
        None,
        max_length=FLUSH_TABLES_MAX,
        description="Only these tables: dotted names, or lists of levels and name; all if left out",
    )
    wait: bool = Field(True, description="Respond when everything is visible")
    timeout_s: float = Field(30.0, ge=0, description="Wait no longer than this")


class FlushAnswer(BaseModel):
    success: bool
    committed: bool = Field(description="Everything that was pending is visible")
    batchesFlushed: int  # noqa: N815 - the protocol's name
    eventsFlushed: int  # noqa: N815
    bytesWritten: int  # noqa: N815
    paths: list[str] = Field(description="The tables that were published")
    snapshots: list[SnapshotAnswer]
    durationMs: int  # noqa: N815
    usedFallback: bool  # noqa: N815
    error: str | None = None


class LandedAnswer(BaseModel):
    token: str
    visible: bool = Field(description="Everything up to the token is visible to all engines")
    waiting: list[str] = Field(description="Tables with changes up to the token that are not visible yet")


@router.post(
    "/flush",
    operation_id="flush",
    response_model=FlushAnswer,
    response_model_exclude_unset=True,
    responses=ERRORS,
)
async def post_flush(
    api: ContextOf, warehouse: Writable, body: Annotated[FlushRequest | None, Body()] = None
) -> Any:
    """Land what is pending now, and wait until it is visible."""
    wanted = body or FlushRequest.model_validate({})
    tables = None if wanted.tables is None else {_table(api, given) for given in wanted.tables}
    timeout_s = min(wanted.timeout_s, api.settings.commit_wait_s_max)
    return await flush(api, warehouse, tables, wait=wanted.wait, timeout_s=timeout_s)


@router.get(
    "/lake/v1/{warehouse}/landed", operation_id="landed", response_model=LandedAnswer, responses=ERRORS
)
async def landed(
    api: ContextOf,
    warehouse: ReadablePath,
    token: Annotated[str, Query(description="The token of a response of /cdc")],
    wait_s: Annotated[float, Query(alias="wait-s", ge=0, description="Wait no longer than this")] = 0,
) -> Any:
    """Check whether everything up to a token is visible."""
    named, journal_id = parse_token(token)
    if named != warehouse:
        raise Invalid(f"the token belongs to the warehouse {named}")
    waiting = await api.run_query(lambda: api.landing.waiting_up_to(warehouse, journal_id))
    if waiting and wait_s > 0:
        waiting = await _wait(api, warehouse, journal_id, min(wait_s, api.settings.commit_wait_s_max))
    return {"token": token, "visible": not waiting, "waiting": sorted(map(dotted, waiting))}


async def flush(
    api: ApiContext, warehouse: str, tables: Collection[TableName] | None, *, wait: bool, timeout_s: float
) -> dict[str, Any]:
    """Land what is pending. The result counts what was pending at the call."""
    begun_s = time.monotonic()
    pending = await api.run_query(
        lambda: [row for row in api.journal.pending(warehouse) if tables is None or row.table in tables]
    )
    await api.run_query(lambda: api.landing.flush(warehouse, tables))
    until = {row.table: row.last_id for row in pending}
    is_visible = wait and await api.visibility.wait(warehouse, until, timeout_s)
    rows = await api.run_query(lambda: api.landing.rows(warehouse, set(until))) if is_visible else {}
    snapshots = snapshots_response(rows)
    result: dict[str, Any] = {
        "success": is_visible or not wait,
        "committed": is_visible,
        "batchesFlushed": len({snapshot["number"] for snapshot in snapshots}),
        "eventsFlushed": sum(row.events for row in pending) if is_visible else 0,
        "bytesWritten": sum(row.stored_bytes for row in pending) if is_visible else 0,
        "paths": [dotted(table) for table in sorted(rows)],
        "snapshots": snapshots,
        "durationMs": int((time.monotonic() - begun_s) * 1000),
        "usedFallback": False,
    }
    if wait and not is_visible:
        result["error"] = f"Not everything became visible within {timeout_s:g} s. It is durable and will land"
    return result


async def _wait(api: ApiContext, warehouse: str, journal_id: int, timeout_s: float) -> list[TableName]:
    pending = await api.run_query(lambda: api.journal.pending(warehouse))
    until = {row.table: min(row.last_id, journal_id) for row in pending if row.first_id <= journal_id}
    await api.visibility.wait(warehouse, until, timeout_s)
    return list(await api.run_query(lambda: api.landing.waiting_up_to(warehouse, journal_id)))


def _table(api: ApiContext, given: str | list[str]) -> TableName:
    levels = tuple(given.split(".")) if isinstance(given, str) else tuple(given)
    if not levels or not all(levels):
        raise Invalid("tables must hold names such as inventory.customers")
    return levels if len(levels) > 1 else (*api.settings.default_namespace, *levels)
