"""POST /cdc, /cdc/{namespace}/{table} and /topics/{topic}: changes over HTTP.

The response is sent after COMMIT. A client that does not wait for it loses nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response

from catalog.errors import CatalogError, Unavailable
from ingest.api import sources, unusable
from ingest.api.context import ApiContext, PendingAppend, committed, now_ms
from ingest.api.dependencies import ContextOf, TableOf, TopicOf
from ingest.api.parameters import ChangeParameters, ParametersOf
from ingest.api.ports import LandedRow
from ingest.api.responses import (
    CHANGE_ERRORS,
    AppendResult,
    ChangesCommitted,
    ChangesReceived,
    TopicOffsets,
    commit_response,
    kafka_response,
    receipt_response,
)
from ingest.change import Parsed, TableName

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
DEADLINE_MARGIN_S = 1.0  # a response that says "not yet" must leave before the request times out
DESCRIPTION = (
    "The response means that the changes are durable. With wait=commit it comes when they are visible to "
    "every engine, or says that they are not yet. A bad event does not prevent the others: it is kept as a "
    "dead letter, and `success` is false. If no event can be used, nothing is stored and the response is "
    "400; with on-unusable=dead-letter all of them are kept."
)


def body_of_types(*types: str) -> dict[str, Any]:
    """The `requestBody` of a route that parses its body itself."""
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
    sources.acked(state, summary.number, now_ms())
    return result


def _append(request: Request, api: ApiContext, parameters: ChangeParameters, body: bytes) -> PendingAppend:
    headers = dict(request.scope["headers"])
    request.scope["calve.caller"] = api.access.poster(headers, body, parameters.warehouse).name
    parsed = api.parse(body, parameters.context)
    if unusable.is_unusable(parsed) and not _keeps_unusable(api, parameters, parsed):
        raise unusable.refusal(parsed, parameters.context)
    return api.append(parameters.warehouse, parsed, parameters.priority)


def _keeps_unusable(api: ApiContext, parameters: ChangeParameters, parsed: Parsed) -> bool:
    if parameters.on_unusable is not None:
        return parameters.on_unusable == "dead-letter"
    return unusable.keeps(parsed, parameters.context, api.settings)


def _refused(api: ApiContext, error: CatalogError) -> None:
    """Debezium Server stops after a few seconds of refusals, so it must not be told to wait longer."""
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
) -> Mapping[TableName, LandedRow] | None:
    """Wait until all changes are visible. None if that takes longer than the request allows."""
    begun_s = time.monotonic()
    deadline_s = request.scope.get("calve.deadline_s", float("inf"))
    timeout_s = max(0.0, min(parameters.timeout_s, deadline_s - begun_s - DEADLINE_MARGIN_S))
    warehouse, tables = parameters.warehouse, result.summary.tables
    is_visible = await api.visibility.wait(warehouse, await _until(api, result), timeout_s)
    api.metrics.waited(committed=is_visible, took_s=time.monotonic() - begun_s)
    return await api.run_query(lambda: api.landing.rows(warehouse, tables)) if is_visible else None


async def _until(api: ApiContext, result: AppendResult) -> dict[TableName, int]:
    """The journal id that each table must reach.

    Events that were received before may not be visible yet, so their tables are waited for too.
    """
    until = dict.fromkeys(result.receipt.tables, result.token_id)
    others = result.summary.tables - until.keys()
    if others:
        pending = await api.run_query(lambda: api.journal.pending(result.warehouse))
        until.update((row.table, row.last_id) for row in pending if row.table in others)
    return until


def _json(body: dict[str, Any], status: int) -> Response:
    return Response(orjson.dumps(body), status, media_type=JSON)
