"""`GET /subscribe` as server-sent events, and `GET /lake/v1/{warehouse}/changes` as a long poll."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from pydantic import BaseModel, Field

from catalog.api.dependencies import CallerDep, ReaderWarehouse
from catalog.api.responses import json_response
from catalog.shutdown import stopping
from query.feed import measures
from query.feed.events import Message
from query.feed.feed import Feed, SubscribeRequest
from query.feed.filters import OPERATIONS
from query.feed.streams import EventStream
from query.feed.subscription import Subscription

router = APIRouter(tags=["Subscribe"])

WAIT_S_MAX = 30
LIMIT_DEFAULT = 1000
LIMIT_MAX = 10_000
EXAMPLE = "status = 'new' AND amount > 10"

Tables = Annotated[
    list[str] | None,
    Query(description="Names and patterns with commas between, such as `shop.orders,crm.*`; default: all"),
]
Operations = Annotated[
    list[str] | None, Query(description=f"With commas between, of {', '.join(OPERATIONS)}; default: all")
]
Where = Annotated[
    str | None,
    Query(description=f"A predicate on the row before or after the change, such as `{EXAMPLE}`"),
]
Columns = Annotated[list[str] | None, Query(description="Names of columns with commas between; default: all")]
Snapshot = Annotated[
    bool, Query(description="First the rows of the tables, as changes with the operation `read`")
]

EVENT: dict[str, Any] = {
    "type": "object",
    "description": "Each event of the stream. `data` is JSON.",
    "properties": {name: {"type": "string"} for name in ("id", "event", "data")},
}
ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"description": "A parameter is wrong."},
    401: {"description": "No caller, or a token that is wrong or expired."},
    404: {"description": "There is no such table or warehouse."},
    409: {"description": "Changes of the table are not kept row by row."},
    410: {"description": "`must-refetch`: the changes after the token are no longer all there."},
    429: {"description": "This server process has too many subscriptions."},
}


class ChangeMessage(BaseModel):
    table: str
    operation: str = Field(description="insert, update, delete, truncate; `read`: a row of the snapshot")
    before: dict[str, Any] | None = Field(description="The row before it, as far as the source sent it")
    after: dict[str, Any] | None = Field(description="The row after it; null for a delete")
    number: int = Field(description="The commit of the warehouse that published it")
    commit_timestamp: str | None = None
    source_timestamp: str | None = None
    source: str | None = None
    position: str | None = None
    transaction: str | None = None
    event_id: str | None = None


class ResetAnswer(BaseModel):
    table: str
    number: int
    reason: str


class ChangePage(BaseModel):
    changes: list[ChangeMessage]
    must_refetch: list[ResetAnswer] = Field(
        serialization_alias="must-refetch", description="Tables whose rows changed in another way"
    )
    snapshot_end: int | None = Field(
        serialization_alias="snapshot-end", description="The number of the snapshot whose last rows these are"
    )
    next: str = Field(description="Pass this as `after` to continue")
    number: int = Field(description="Everything up to this commit has been sent")
    has_more: bool = Field(
        serialization_alias="has-more", description="There is more: send the next request at once"
    )


async def _feed(request: Request) -> Feed:
    feed: Feed = request.app.state.feed
    return feed


FeedDep = Annotated[Feed, Depends(_feed)]


@router.get(
    "/subscribe",
    operation_id="subscribe",
    response_class=Response,
    responses={
        200: {
            "description": "Events `change`, `begin`, `progress`, `snapshot-end`, `must-refetch`, "
            "`slow-consumer` and `error`. The id of each is the token to resume from.",
            "content": {"text/event-stream": {"schema": EVENT}},
        },
        **ERRORS,
    },
)
async def subscribe(  # noqa: PLR0913, PLR0917 - each is a parameter of the URL
    request: Request,
    feed: FeedDep,
    _caller: CallerDep,
    warehouse: str = "main",
    tables: Tables = None,
    operations: Operations = None,
    where: Where = None,
    columns: Columns = None,
    from_: Annotated[
        str | None,
        Query(alias="from", description="A token, a number, a time or `5 minutes ago`; default: now"),
    ] = None,
    snapshot: Snapshot = False,
    timeout_s: Annotated[
        float | None,
        Query(alias="timeout-s", ge=0, description="End the stream after this time; default: never"),
    ] = None,
    last_event_id: Annotated[
        str | None, Header(description="The id of the last event: the stream resumes after it")
    ] = None,
) -> Response:
    """Stream changes of tables as they are published, as server-sent events."""
    wanted = SubscribeRequest(
        warehouse, tables, operations, where, columns, last_event_id or from_, snapshot=snapshot
    )
    subscription = await feed.open(wanted, request.headers.get("authorization"))
    await subscription.prepare()
    feed.enter("sse")
    return EventStream(subscription, timeout_s, lambda: feed.leave("sse"))


@router.get(
    "/lake/v1/{warehouse}/changes",
    operation_id="listWarehouseChanges",
    response_model=ChangePage,
    responses=ERRORS,
)
async def list_warehouse_changes(  # noqa: PLR0913, PLR0917 - each is a parameter of the URL
    request: Request,
    feed: FeedDep,
    warehouse: ReaderWarehouse,
    after: Annotated[
        str | None,
        Query(description="`next` of the page before, or any token; also a number or a time; default: now"),
    ] = None,
    tables: Tables = None,
    operations: Operations = None,
    where: Where = None,
    columns: Columns = None,
    snapshot: Snapshot = False,
    wait_s: Annotated[
        float, Query(alias="wait-s", ge=0, le=WAIT_S_MAX, description="Wait this long for a change")
    ] = 0,
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX, description="Most changes of a page")] = LIMIT_DEFAULT,
) -> Response:
    """List changes of all tables of a warehouse in the order in which they were published, in pages."""
    wanted = SubscribeRequest(warehouse, tables, operations, where, columns, after, snapshot=snapshot)
    subscription = await feed.open(wanted, request.headers.get("authorization"))
    found = await _collect(subscription, wait_s, limit)
    measures.sent("poll", found)
    changes = [message.data for message in found if message.kind == "change"]
    ended = [message.data["number"] for message in found if message.kind == "snapshot-end"]
    cursor = subscription.cursor
    return json_response(
        {
            "changes": changes,
            "must-refetch": [message.data for message in found if message.kind == "must-refetch"],
            "snapshot-end": ended[0] if ended else None,
            "next": cursor.token,
            "number": cursor.number,
            "has-more": len(changes) >= limit,
        }
    )


async def _collect(subscription: Subscription, wait_s: float, limit: int) -> list[Message]:
    """Collect messages until there are enough or, if there is none, until the timeout."""
    until_s = time.monotonic() + wait_s
    found: list[Message] = []
    while True:
        count = 0
        async for message in subscription.pending():
            found.append(message)
            count += message.kind == "change"
            if count >= limit:
                return found
        left_s = until_s - time.monotonic()
        if any(one.kind != "progress" for one in found) or left_s <= 0 or stopping.is_set():
            return found
        found.clear()
        await subscription.wait(left_s)
