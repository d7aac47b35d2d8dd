"""POST /cdc/explain: show how a request would be handled, without storing it.

For the first events: table, operation, key, position, identity, and each column with its value, the type that
the producer declares, and the type that it would get. The rules for types are those of staging.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from catalog.errors import CatalogError
from ingest.api.changes import BODY_TYPES, ChangeParameters, ParametersOf, body_of_types
from ingest.api.context import ApiContext, ContextOf
from ingest.api.dependencies import TableOf
from ingest.api.results import CHANGE_ERRORS, dotted
from ingest.change import Change, ParsedRequest, Reject, TableName
from ingest.identity import NO_KEY, ROW_ID, reasoned_key, with_row_ids
from ingest.landing.status import LandingStatus

if TYPE_CHECKING:
    from ingest.types.schema_plan import SchemaPlan

EVENTS_MAX = 20
TABLES_MAX = 20
ORIGINAL_BYTES_MAX = 2_000
NO_IDENTITY = (
    "a repeat of this request would not be recognised: send an Idempotency-Key with it, or X-Source-Id and "
    "X-Batch-Seq"
)


router = APIRouter(tags=["Changes"])


class ChangesExplained(BaseModel):
    format: str
    eventsReceived: int  # noqa: N815 - the protocol's name
    events: list[dict[str, Any]]
    tables: list[dict[str, Any]]
    advice: list[str]


POST: dict[str, Any] = {
    "response_model": ChangesExplained,
    "response_description": "How the request would be handled.",
    "summary": "Explain changes",
    "description": "Shows how a request would be handled: format, table, key, operation and the type of each "
    "column. Nothing is stored.",
    "responses": CHANGE_ERRORS,
    "openapi_extra": body_of_types(*BODY_TYPES),
}


@router.post("/cdc/explain", operation_id="explainChanges", **POST)
async def explain_changes(request: Request, api: ContextOf, parameters: ParametersOf) -> Response:
    return await _response(request, api, parameters)


@router.post("/cdc/explain/{namespace}/{table}", operation_id="explainTableChanges", **POST)
async def explain_table_changes(
    request: Request, api: ContextOf, parameters: ParametersOf, table: TableOf
) -> Response:
    return await _response(request, api, parameters.to_table(table))


async def _response(request: Request, api: ApiContext, parameters: ChangeParameters) -> Response:
    body, headers = await request.body(), dict(request.scope["headers"])

    def parse() -> ParsedRequest:
        request.scope["calve.caller"] = api.access.poster(headers, body, parameters.warehouse).name
        return api.parse(body, parameters.context, parameters.warehouse)

    parsed = await api.run_parse(len(body), parse)
    explained = await api.run_query(lambda: explain(parsed, parameters.warehouse, api.landing))
    return Response(orjson.dumps(explained), media_type="application/json")


@dataclass(frozen=True, slots=True)
class _Target:
    """A table as it is now, and as it would be."""

    existing: Mapping[str, Any] | None
    key: tuple[str, ...]
    plan: SchemaPlan
    offences: Mapping[int, str]  # by the index of the event
    problem: str | None = None
    key_reason: str | None = None


def explain(parsed: ParsedRequest, warehouse: str, landing: LandingStatus) -> dict[str, Any]:
    """Return the body of the response. Queries the landing side for each table."""
    tables: dict[TableName, list[Change]] = {}
    for change in parsed.changes:
        if len(tables) < TABLES_MAX or change.table in tables:
            tables.setdefault(change.table, []).append(change)
    targets = {table: _target(table, changes, warehouse, landing) for table, changes in tables.items()}
    events = [
        *(_change(change, targets.get(change.table)) for change in parsed.changes),
        *(_reject(reject) for reject in parsed.rejects),
        *({"index": index, "status": "ignored", "reason": why} for index, why in parsed.ignored.items()),
        *(
            {
                "index": end.index,
                "status": "transaction-end",
                "transaction": end.transaction,
                "size": end.size,
            }
            for end in parsed.ends
        ),
    ]
    events.sort(key=lambda event: event["index"])
    return {
        "format": parsed.format,
        "eventsReceived": parsed.events,
        "events": events[:EVENTS_MAX],
        "tables": [_table(table, target) for table, target in targets.items()],
        "advice": _advice(parsed, targets),
    }


def _target(table: TableName, changes: Sequence[Change], warehouse: str, landing: LandingStatus) -> _Target:
    from ingest.types import schema_plan  # imports Arrow, which the server does not need otherwise

    found = landing.explain_table(warehouse, table) or {}
    schema, settings = found.get("schema"), found.get("settings") or {}
    reasoned = reasoned_key(settings.get("key"), schema, changes, found.get("known-key"))
    key = reasoned.columns
    if key == (ROW_ID,):
        with_row_ids(changes)
    policy = settings.get("policy", "evolve")
    try:
        plan = schema_plan.plan(schema, changes, policy=policy, key=key, extra=(), last_column_id=0)
    except CatalogError as error:
        return _Target(schema, key, schema_plan.SchemaPlan([], None), {}, error.message, reasoned.reason)
    offences = {changes[row].index: why for row, why in schema_plan.policy_violations(changes, plan).items()}
    return _Target(schema, key, plan, offences, key_reason=reasoned.reason)


def _change(change: Change, target: _Target | None) -> dict[str, Any]:
    row = change.after if change.after is not None else change.before
    columns = _columns(change, row or {}, target) if target is not None else []
    problems = [column["problem"] for column in columns if "problem" in column]
    offence = target.offences.get(change.index) if target is not None else None
    reason = offence or next(iter(problems), None)
    return {
        "index": change.index,
        "status": "dead_lettered" if reason is not None else "accepted",
        "reason": reason,
        "table": dotted(change.table),
        "operation": change.operation,
        "key": list(target.key) if target is not None else [],
        "source": change.source,
        "position": change.position,
        "transaction": change.transaction,
        "identity": change.identity or (str(change.number) if change.number is not None else None),
        "time-ms": change.time_ms,
        "columns": columns,
    }


def _columns(change: Change, row: Mapping[str, Any], target: _Target) -> list[dict[str, Any]]:
    wanted = {column.name: column for column in target.plan.columns}
    known = {each["name"] for each in (target.existing or {}).get("fields", ())}
    declared = change.declared
    found = []
    for name, value in row.items():
        column: dict[str, Any] = {
            "name": name,
            "value": value,
            "declared": declared.columns.get(name) if declared is not None else None,
            "target": wanted[name].type if name in wanted else None,
            "exists": name in known,
        }
        problem = target.plan.refused.get(name)
        if problem is not None:
            column["left-out"] = problem
        elif name in wanted and change.operation != "delete":
            _add_misfit(column, change, wanted[name].type)
        found.append(column)
    return found


def _add_misfit(column: dict[str, Any], change: Change, type_: Any) -> None:
    """Add why the value does not fit the type, if it does not."""
    from ingest.types.errors import RejectedValue
    from ingest.types.iceberg import encoding_of
    from ingest.types.values import convert

    try:
        convert(column["name"], column["value"], type_, encoding_of(change.declared, column["name"]))
    except RejectedValue as unfit:
        column["problem"] = str(unfit)


def _reject(reject: Reject) -> dict[str, Any]:
    return {
        "index": reject.index,
        "status": "dead_lettered",
        "reason": reject.reason,
        "code": reject.code,
        "table": dotted(reject.table) if reject.table else None,
        "source": reject.source,
        "original": reject.original[:ORIGINAL_BYTES_MAX].decode("utf-8", "replace"),
    }


def _table(table: TableName, target: _Target) -> dict[str, Any]:
    return {
        "table": dotted(table),
        "exists": target.existing is not None,
        "key": list(target.key),
        "key-reason": target.key_reason,
        "columns": [{"name": column.name, "type": column.type} for column in target.plan.columns],
        "left-out": dict(target.plan.refused),
        "problem": target.problem,
    }


def _advice(parsed: ParsedRequest, targets: Mapping[TableName, _Target]) -> list[str]:
    advice = []
    for table, target in targets.items():
        changes = [change for change in parsed.changes if change.table == table]
        if target.problem is not None:
            advice.append(f"{dotted(table)}: {target.problem}")
        elif not target.key and any(change.operation in ("update", "delete") for change in changes):
            advice.append(f"{dotted(table)}: {NO_KEY}")
        elif target.existing is None:
            advice.append(f"{dotted(table)} does not exist yet: the first batch creates it")
    if any(not change.identity and change.number is None for change in parsed.changes):
        advice.append(NO_IDENTITY)
    if parsed.rejects:
        advice.append(f"{len(parsed.rejects)} of the events cannot be used: {parsed.rejects[0].reason}")
    return advice
