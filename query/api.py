"""The HTTP routes of queries: `POST /query`, `GET /query`, `DELETE /query/{id}`, and the list of queries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.types import Receive, Scope, Send

from catalog.api.dependencies import AdminWarehouse, CallerDep
from catalog.errors import CatalogError, Invalid, Unsupported
from query import media_types
from query.errors import Cancelled
from query.service import Answer, QueryRequest, QueryService

router = APIRouter(tags=["Query"])

PARAMETER_PREFIX = "param_"
ACCEPTED = {
    "application/json": "json",
    "application/x-ndjson": "ndjson",
    "application/ndjson": "ndjson",
    "application/jsonl": "ndjson",
    "text/csv": "csv",
    "application/vnd.apache.arrow.stream": "arrow",
    "application/vnd.apache.parquet": "parquet",
    "*/*": "json",
    "application/*": "json",
    "text/*": "csv",
}


class QueryBody(BaseModel):
    model_config = ConfigDict(extra="forbid")
    sql: str = Field(
        description="One SELECT or EXPLAIN in DuckDB's SQL", examples=["SELECT * FROM shop.orders"]
    )
    params: dict[str, Any] | list[Any] | None = Field(
        None, description="Values for $name (an object) or for $1 and ? (a list)"
    )
    as_of: str | int | float | None = Field(
        None,
        description="The moment that all tables are read at: a time (ISO 8601 or milliseconds since 1970), "
        "the number of a commit, `5 minutes ago`, or the token of an acknowledgement. Default: the present",
    )
    snapshot_id: int | None = Field(None, description="The snapshot to read, for a query of one table")
    consistency: str = Field(
        "committed",
        description="`committed`: what is published; `fresh`: also everything acknowledged before the "
        "request; `at_least:TOKEN`: wait for a token of /cdc",
    )
    warehouse: str = Field("main", description="The warehouse of tables that name none")
    namespace: str | None = Field(None, description="The namespace of tables that name none")
    format: str | None = Field(
        None, description="json, compact, ndjson, csv, arrow or parquet; by Accept if left out"
    )
    explain: bool = Field(False, description="Run the query and describe what it read, without its rows")
    timeout_s: float | None = Field(None, ge=1, description="End the query after this many seconds")


class ColumnAnswer(BaseModel):
    name: str
    type: str


class QueryAnswer(BaseModel):
    """The JSON form. `rows` are objects; with format=compact they are lists."""

    columns: list[ColumnAnswer]
    rows: list[Any]
    rowCount: int  # noqa: N815 - as clients of other engines know it
    as_of: dict[str, Any] = Field(
        description="warehouse, number, time, commit_time; token, if changes up to it were added"
    )
    snapshots: dict[str, int | None] = Field(description="The snapshot of each table")
    freshness_ms: int = Field(
        description="The age of the oldest acknowledged change that the answer does not have; 0 if it has all"
    )
    fresh_by: Literal["published", "journal", "waited"] | None = Field(
        None,
        description="With consistency=fresh: `published`, everything acknowledged was published; `journal`, "
        "unpublished changes were added from the journal; `waited`, the query waited for their publish",
    )
    fresh_reason: str | None = Field(None, description="Why it waited")
    elapsed_ms: float
    query_id: str
    explain: dict[str, Any] | None = None
    error: dict[str, Any] | None = Field(None, description="The result broke off here")


class RunningAnswer(BaseModel):
    query_id: str
    caller: str
    warehouse: str
    sql: str
    state: str = Field(description="waiting, running, done, failed or cancelled")
    started_ms: int
    duration_ms: float
    rows: int | None
    bytes: int
    error: str | None


class QueryList(BaseModel):
    queries: list[RunningAnswer]


class CancelAnswer(BaseModel):
    query_id: str
    state: str = Field(description="cancelled; cancelling: another server process has not ended it yet")


async def _service(request: Request) -> QueryService:
    service: QueryService = request.app.state.query
    return service


ServiceDep = Annotated[QueryService, Depends(_service)]

_CONTENT: dict[str, Any] = {
    media: {} for media in dict.fromkeys(media_types.MEDIA_TYPES.values()) if media != "application/json"
}
_ERRORS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The result. Its headers have what is known before the first row.",
        "content": _CONTENT,
        "headers": {
            "Calve-Query-Id": {"schema": {"type": "string"}},
            "Calve-As-Of": {"description": "JSON, as `as_of`", "schema": {"type": "string"}},
            "Calve-Snapshots": {"description": "JSON, as `snapshots`", "schema": {"type": "string"}},
            "Calve-Freshness-Ms": {"schema": {"type": "integer"}},
            "Calve-Fresh-By": {
                "description": "As `fresh_by`, with consistency=fresh",
                "schema": {"type": "string"},
            },
        },
    },
    400: {"description": "The SQL or a parameter is wrong, or the SQL may not run here."},
    401: {"description": "No caller, or a token that is wrong or expired."},
    404: {"description": "There is no such table or warehouse."},
    406: {"description": "Accept names no format that results have."},
    409: {"description": "The query was cancelled."},
    413: {"description": "The query needs too much memory, or its result is too large."},
    503: {"description": "No query process is free: try again later."},
    504: {"description": "The query, or the changes it waits for, took too long."},
}


@router.post("/query", operation_id="query", response_model=QueryAnswer, responses=_ERRORS)
async def post_query(request: Request, service: ServiceDep, caller: CallerDep, body: QueryBody) -> Response:
    """Run SQL on the tables of a warehouse, as of any moment."""
    return await _respond(request, service, caller, body)


@router.get("/query", operation_id="queryByUrl", response_model=QueryAnswer, responses=_ERRORS)
async def get_query(  # noqa: PLR0913, PLR0917 - each is a parameter of the URL
    request: Request,
    service: ServiceDep,
    caller: CallerDep,
    sql: Annotated[
        str, Query(description="One SELECT. Its parameters are param_name or param_1, param_2, ...")
    ],
    as_of: str | None = None,
    snapshot_id: int | None = None,
    consistency: str = "committed",
    warehouse: str = "main",
    namespace: str | None = None,
    format: Annotated[str | None, Query()] = None,  # noqa: A002 - the name of the parameter
    explain: bool = False,
) -> Response:
    """Run SQL from a URL, for a browser or a spreadsheet. A value of param_x is parsed as JSON if possible,
    else it is text.
    """
    given = {
        name.removeprefix(PARAMETER_PREFIX): _value(text)
        for name, text in request.query_params.items()
        if name.startswith(PARAMETER_PREFIX)
    }
    body = QueryBody(
        sql=sql,
        params=given or None,
        as_of=as_of,
        snapshot_id=snapshot_id,
        consistency=consistency,
        warehouse=warehouse,
        namespace=namespace,
        format=format,
        explain=explain,
        timeout_s=None,
    )
    return await _respond(request, service, caller, body)


@router.delete(
    "/query/{query_id}",
    operation_id="cancelQuery",
    response_model=CancelAnswer,
    responses={
        400: {"description": "A parameter is wrong."},
        401: {"description": "No caller, or a token that is wrong or expired."},
        404: {"description": "No such query of the caller is running."},
    },
)
async def delete_query(service: ServiceDep, caller: CallerDep, query_id: str) -> Any:
    """Cancel a running query: one of the caller, or of a warehouse that the caller administers."""
    has_ended = await service.cancel(query_id, caller)
    return {"query_id": query_id, "state": "cancelled" if has_ended else "cancelling"}


@router.get("/lake/v1/{warehouse}/queries", operation_id="listQueries", response_model=QueryList)
async def list_queries(service: ServiceDep, warehouse: AdminWarehouse) -> Any:
    """List running and recent queries of all server processes, for administrators.

    Queries of other processes appear when they have run for a second, or about a second after their end.
    """
    return {"queries": await service.listed(warehouse)}


async def _respond(request: Request, service: QueryService, caller: CallerDep, body: QueryBody) -> Response:
    format_ = _format(body.format, request.headers.get("accept"))
    wanted = QueryRequest(**body.model_dump(exclude={"format"}), format=format_)
    start = asyncio.ensure_future(
        service.start(wanted, caller, _bearer(request), request.scope.get("calve.deadline_s"))
    )
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({start, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not start.done():
            start.cancel()
            raise Cancelled("The client closed the connection")
        answer = start.result()
    finally:
        gone.cancel()
        start.cancel()
    return _response(answer, format_)


def _response(answer: Answer, format_: str) -> Response:
    media_type = media_types.MEDIA_TYPES[format_]
    headers = _headers(answer.summary)
    if answer.explained is not None:
        whole = {"columns": [], "rows": [], "rowCount": 0, **answer.summary, "explain": answer.explained}
        return Response(orjson.dumps(whole), headers=headers, media_type="application/json")
    if answer.is_whole:
        return Response(answer.first, headers=headers, media_type=media_type)
    assert answer.rest is not None
    return ResultResponse(_body(answer, format_), headers=headers, media_type=media_type)


class ResultResponse(StreamingResponse):
    """A streamed result. When the response ends, for any reason, the query ends too."""

    body_iterator: AsyncIterator[bytes]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self.body_iterator.aclose()  # type: ignore[attr-defined]


async def _body(answer: Answer, format_: str) -> AsyncIterator[bytes]:
    """Yield the pieces of a result. A result that fails in the middle ends in a form that no reader takes for
    complete.
    """
    rest = answer.rest
    assert rest is not None
    try:
        yield answer.first
        async for piece in rest:
            yield piece
    except CatalogError as error:
        end = media_types.broken_off(
            format_, {"message": error.message, "type": error.type, "code": error.status}
        )
        if end is None:
            raise  # the connection is closed without the end of the body
        yield end
    finally:
        await rest.aclose()  # type: ignore[attr-defined]


def _headers(summary: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers in ASCII: clients do not agree on another encoding."""
    fresh = {"Calve-Fresh-By": summary["fresh_by"]} if "fresh_by" in summary else {}
    return fresh | {
        "Calve-Query-Id": summary["query_id"],
        "Calve-As-Of": _ascii(summary["as_of"]),
        "Calve-Snapshots": _ascii(summary["snapshots"]),
        "Calve-Freshness-Ms": str(summary["freshness_ms"]),
        "Cache-Control": "no-store",
    }


def _ascii(value: Any) -> str:
    text = orjson.dumps(value).decode()
    return "".join(letter if letter.isascii() else f"\\u{ord(letter):04x}" for letter in text)


def _format(given: str | None, accept: str | None) -> str:
    if given is not None:
        if given not in media_types.FORMATS:
            raise Invalid(f"format must be one of {', '.join(media_types.FORMATS)}")
        return given
    if not accept:
        return "json"
    for part in sorted(accept.split(","), key=_quality, reverse=True):
        media = part.partition(";")[0].strip().lower()
        if media in ACCEPTED:
            return ACCEPTED[media]
    if "text/html" in accept:  # a browser
        return "json"
    raise Unsupported(f"Accept must be one of {', '.join(ACCEPTED)}")


def _quality(part: str) -> float:
    _, _, quality = part.partition(";q=")
    try:
        return float(quality or 1)
    except ValueError:
        return 0.0


def _value(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def _bearer(request: Request) -> str | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
