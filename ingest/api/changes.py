"""Receive changes over HTTP: POST /cdc, /cdc/{namespace}/{table} and /topics/{topic}.

The response is sent after COMMIT. If the client disconnects earlier, its changes are stored all the same.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Depends, Header, Query, Request, Response
from pydantic import BaseModel, Field
from pydantic.config import JsonDict

from catalog.errors import CatalogError, Invalid, Unavailable
from catalog.names import check_name
from ingest.api.context import ApiContext, ContextOf, PendingAppend, committed, now_ms
from ingest.api.dependencies import TableOf, TopicOf
from ingest.api.results import (
    CHANGE_ERRORS,
    AppendResult,
    ChangesCommitted,
    ChangesReceived,
    TopicOffsets,
    commit_response,
    is_unusable,
    kafka_response,
    note_acknowledged,
    receipt_response,
)
from ingest.api.unusable import keeps_unusable, unusable_refusal
from ingest.change import ParsedRequest, RequestContext, TableName
from ingest.formats.detect import FORMATS
from ingest.store.tables import LandedTable

Wait = Literal["journal", "commit"]
OnUnusable = Literal["reject", "dead-letter"]

NAME_CHARS_MAX = 255
KEY_COLUMNS_MAX = 32
PRIORITIES = {
    **{str(number): number for number in range(4)},
    **{f"p{number}": number for number in range(4)},
    "high": 0,
    "normal": 1,
    "low": 3,
}
NORMAL_PRIORITY = 1
NAME_SCHEMA: JsonDict = {"minLength": 1, "maxLength": NAME_CHARS_MAX, "pattern": "^[!-~]+$"}
PRIORITY_SCHEMA: JsonDict = {"enum": ["0", "1", "2", "3"]}


class ChangeQuery(BaseModel):
    """The query parameters."""

    warehouse: str | None = Field(None, description="The warehouse; main if left out")
    format: str = Field(
        "auto", description="The producer's format", json_schema_extra={"enum": ["auto", *FORMATS]}
    )
    key: str | None = Field(None, description="Key columns, separated by commas, if the events name none")
    wait: Wait | None = Field(None, description="When to answer; journal if left out")
    ack: Wait | None = Field(None, description="Another name of wait")
    timeout_s: float | None = Field(None, ge=0, allow_inf_nan=False, description="Wait no longer than this")
    verbose: bool = Field(False, description="List every event in the response")
    on_unusable: OnUnusable | None = Field(
        None,
        alias="on-unusable",
        description="If no event can be used: answer 400, or keep them as dead letters. The setting "
        "`dead_letter_sources` is used if left out",
    )


class ChangeHeaders(BaseModel):
    """The headers. A name is UTF-8 text."""

    idempotency_key: str | None = Field(
        None, description="Identifies the request: a repeat is recognised", json_schema_extra=NAME_SCHEMA
    )
    webhook_id: str | None = Field(
        None, description="The same, of Standard Webhooks", json_schema_extra=NAME_SCHEMA
    )
    x_source_id: str | None = Field(
        None, description="The source, which numbers its events without gaps", json_schema_extra=NAME_SCHEMA
    )
    x_source_epoch: str | None = Field(
        None,
        description="The name of the source's history: a new name begins a new count of its positions",
        json_schema_extra=NAME_SCHEMA,
    )
    x_batch_seq: str | None = Field(
        None, description="The number of the request in its source", json_schema_extra=NAME_SCHEMA
    )
    x_priority: str | None = Field(
        None,
        description="As the journal fills up, 3 is refused first and 0 last",
        json_schema_extra=PRIORITY_SCHEMA,
    )


@dataclass(frozen=True, slots=True)
class ChangeParameters:
    """Where the changes go, how they are parsed, and when the response is sent."""

    warehouse: str
    context: RequestContext
    wait: Wait
    timeout_s: float
    verbose: bool
    priority: int
    on_unusable: OnUnusable | None

    def to_table(self, table: TableName) -> ChangeParameters:
        return replace(self, context=replace(self.context, table=table))

    def to_topic(self, topic: str) -> ChangeParameters:
        return replace(self, context=replace(self.context, topic=topic))


async def _parameters(
    request: Request,
    api: ContextOf,
    query: Annotated[ChangeQuery, Query()],
    headers: Annotated[ChangeHeaders, Header()],
) -> ChangeParameters:
    settings = api.settings
    source = _name("X-Source-Id", headers.x_source_id)
    timeout_s = settings.commit_wait_s if query.timeout_s is None else query.timeout_s
    return ChangeParameters(
        warehouse=query.warehouse or settings.default_warehouse,
        context=RequestContext(
            format=query.format,
            content_type=request.headers.get("content-type", ""),
            source=source,
            key=_key(query.key),
            batch=_batch(headers, source),
            namespace=settings.default_namespace,
            epoch=_name("X-Source-Epoch", headers.x_source_epoch),
        ),
        wait=query.wait or query.ack or "journal",
        timeout_s=min(timeout_s, settings.commit_wait_s_max),
        verbose=query.verbose,
        priority=priority_of(headers.x_priority),
        on_unusable=query.on_unusable,
    )


ParametersOf = Annotated[ChangeParameters, Depends(_parameters)]


def priority_of(text: str | None) -> int:
    """Parse X-Priority: 0 (refused last) to 3 (refused first)."""
    if text is None:
        return NORMAL_PRIORITY
    found = PRIORITIES.get(text.strip().lower())
    if found is None:
        raise Invalid("X-Priority must be 0, 1, 2 or 3")
    return found


def _key(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    columns = tuple(part.strip() for part in text.split(","))
    if len(columns) > KEY_COLUMNS_MAX or len(set(columns)) != len(columns) or "\ufffd" in text:
        raise Invalid(f"key must name at most {KEY_COLUMNS_MAX} different columns, separated by commas")
    return tuple(check_name(column, "key column") for column in columns)


def _batch(headers: ChangeHeaders, source: str | None) -> str | None:
    """Return the name of the request. It identifies events that have no identity of their own."""
    named = _name("Idempotency-Key", headers.idempotency_key) or _name("Webhook-Id", headers.webhook_id)
    number = _name("X-Batch-Seq", headers.x_batch_seq)
    if named is not None or number is None:
        return named
    if source is None:
        raise Invalid("X-Batch-Seq counts the batches of a source: send X-Source-Id with it")
    return f"{source}#{number}"


def _name(header: str, value: str | None) -> str | None:
    if value is None:
        return None
    try:
        text = value.encode("latin-1").decode("utf-8").strip()  # Starlette decodes headers as Latin-1
    except UnicodeDecodeError:
        text = ""
    if not text or len(text) > NAME_CHARS_MAX or not text.isprintable():
        raise Invalid(f"{header} must be a string of 1 to {NAME_CHARS_MAX} characters")
    return text


# -- the routes

log = logging.getLogger(__name__)
router = APIRouter(tags=["Changes"])

JSON = "application/json"
KAFKA_IN = "application/vnd.kafka.json.v2+json"
KAFKA_OUT = "application/vnd.kafka.v2+json"
BODY_TYPES = (
    JSON,
    "application/x-ndjson",
    "application/cloudevents+json",
    "application/cloudevents-batch+json",
)
DEADLINE_MARGIN_S = 1.0  # the response "not yet visible" must be sent before the request times out
DESCRIPTION = (
    "The response means that the changes are durable. With wait=commit it comes when they are visible to "
    "every engine, or says that they are not yet. A bad event does not prevent the others: it is kept as a "
    "dead letter, and `success` is false. If no event can be used, nothing is stored and the response is "
    "400; with on-unusable=dead-letter all of them are kept."
)


def body_of_types(*types: str) -> dict[str, Any]:
    """Return the `requestBody` of a route that parses its body itself."""
    return {"requestBody": {"required": True, "content": {type_: {"schema": {}} for type_ in types}}}


POST: dict[str, Any] = {
    "status_code": 202,
    "response_model": ChangesReceived,
    "response_description": "Durable.",
    "description": DESCRIPTION,
    "responses": {
        200: {"model": ChangesCommitted, "description": "Visible, with wait=commit."},
        **CHANGE_ERRORS,
    },
    "openapi_extra": body_of_types(*BODY_TYPES),
}


@router.post("/cdc", operation_id="postChanges", summary="Post changes of any known producer", **POST)
async def post_changes(request: Request, api: ContextOf, parameters: ParametersOf) -> Response:
    result = await append(request, api, parameters)
    return await _response(request, api, parameters, result)


@router.post(
    "/cdc/{namespace}/{table}",
    operation_id="postTableChanges",
    summary="Post changes of one table, or plain rows",
    **POST,
)
async def post_table_changes(
    request: Request, api: ContextOf, parameters: ParametersOf, table: TableOf
) -> Response:
    result = await append(request, api, parameters.to_table(table))
    return await _response(request, api, parameters, result)


@router.post(
    "/topics/{topic}",
    operation_id="postTopic",
    summary="Post changes as to a Kafka REST proxy",
    description=DESCRIPTION,
    response_model=ChangesCommitted,
    response_description="Durable; with wait=commit, visible.",
    responses={
        200: {"content": {KAFKA_OUT: {"schema": TopicOffsets.model_json_schema()}}},
        202: {"model": ChangesCommitted, "description": "With wait=commit: durable, not visible yet."},
        **CHANGE_ERRORS,
    },
    openapi_extra=body_of_types(KAFKA_IN, JSON),
)
async def post_topic(request: Request, api: ContextOf, parameters: ParametersOf, topic: TopicOf) -> Response:
    result = await append(request, api, parameters.to_topic(topic))
    if parameters.wait == "commit":
        return await _response(request, api, parameters, result)
    return Response(orjson.dumps(kafka_response(result)), media_type=KAFKA_OUT)


async def append(request: Request, api: ApiContext, parameters: ChangeParameters) -> AppendResult:
    """Parse the body, append its changes to the journal and wait for COMMIT."""
    started_s = time.monotonic()
    try:
        api.require_running()
        body = await request.body()
        pending = await api.run_parse(len(body), lambda: _append(request, api, parameters, body))
        summary = pending.summary
        source = parameters.context.source or summary.source
        state = api.sources.received(parameters.warehouse, source, summary.number, summary.events, now_ms())
        result = AppendResult(parameters.warehouse, summary, await committed(pending.receipt))
    except CatalogError as error:
        _refused(api, error)
        raise
    api.failures = 0
    api.metrics.acknowledged("http", result, time.monotonic() - started_s)
    note_acknowledged(state, summary.number, now_ms())
    return result


def _append(request: Request, api: ApiContext, parameters: ChangeParameters, body: bytes) -> PendingAppend:
    headers = dict(request.scope["headers"])
    request.scope["calve.caller"] = api.access.poster(headers, body, parameters.warehouse).name
    parsed = api.parse(body, parameters.context, parameters.warehouse)
    if is_unusable(parsed) and not _keeps_unusable(api, parameters, parsed):
        raise unusable_refusal(parsed, parameters.context)
    return api.append(parameters.warehouse, parsed, parameters.priority)


def _keeps_unusable(api: ApiContext, parameters: ChangeParameters, parsed: ParsedRequest) -> bool:
    if parameters.on_unusable is not None:
        return parameters.on_unusable == "dead-letter"
    return keeps_unusable(parsed, parameters.context, api.settings)


def _refused(api: ApiContext, error: CatalogError) -> None:
    """Limit Retry-After: Debezium Server stops after a few seconds of refusals."""
    if isinstance(error, Unavailable):
        error.retry_after_s = min(error.retry_after_s, api.settings.retry_after_s_max)
    if error.status >= 500:
        log.warning("changes were not stored", extra={"reason": error.message})
    api.note_failure(error)
    api.metrics.refused("http", str(error.status))


async def _response(
    request: Request, api: ApiContext, parameters: ChangeParameters, result: AppendResult
) -> Response:
    if parameters.wait == "journal":
        return _json(receipt_response(result, verbose=parameters.verbose), 202)
    landed = await _landed(request, api, parameters, result)
    body = commit_response(result, landed, verbose=parameters.verbose)
    return _json(body, 202 if landed is None else 200)


async def _landed(
    request: Request, api: ApiContext, parameters: ChangeParameters, result: AppendResult
) -> Mapping[TableName, LandedTable] | None:
    """Wait until all changes are visible. Returns None if that takes longer than the request allows."""
    begun_s = time.monotonic()
    deadline_s = request.scope.get("calve.deadline_s", float("inf"))
    timeout_s = max(0.0, min(parameters.timeout_s, deadline_s - begun_s - DEADLINE_MARGIN_S))
    warehouse, tables = parameters.warehouse, result.summary.tables
    is_visible = await api.visibility.wait(warehouse, await _until(api, result), timeout_s)
    api.metrics.waited(committed=is_visible, took_s=time.monotonic() - begun_s)
    return await api.run_query(lambda: api.landing.rows(warehouse, tables)) if is_visible else None


async def _until(api: ApiContext, result: AppendResult) -> dict[TableName, int]:
    """Return the journal id that each table must reach.

    Events that were received before may not be visible yet, so their tables are included.
    """
    until = dict.fromkeys(result.receipt.tables, result.token_id)
    others = result.summary.tables - until.keys()
    if others:
        pending = await api.run_query(lambda: api.journal.pending(result.warehouse))
        until.update((row.table, row.last_id) for row in pending if row.table in others)
    return until


def _json(body: dict[str, Any], status: int) -> Response:
    return Response(orjson.dumps(body), status, media_type=JSON)
