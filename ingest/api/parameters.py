"""The query parameters and headers of a request that brings changes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from fastapi import Depends, Header, Query, Request
from pydantic import BaseModel, Field
from pydantic.config import JsonDict

from catalog.errors import Invalid
from catalog.names import check_name
from ingest.api.dependencies import ContextOf
from ingest.change import Context, TableName
from ingest.formats import FORMATS

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
    """Where the changes go, how they are parsed, and when to answer."""

    warehouse: str
    context: Context
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
        context=Context(
            format=query.format,
            content_type=request.headers.get("content-type", ""),
            source=source,
            key=_key(query.key),
            batch=_batch(headers, source),
            namespace=settings.default_namespace,
        ),
        wait=query.wait or query.ack or "journal",
        timeout_s=min(timeout_s, settings.commit_wait_s_max),
        verbose=query.verbose,
        priority=priority_of(headers.x_priority),
        on_unusable=query.on_unusable,
    )


ParametersOf = Annotated[ChangeParameters, Depends(_parameters)]


def priority_of(text: str | None) -> int:
    """The value of X-Priority: 0 (refused last) to 3 (refused first)."""
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
    """The identity of the request: it stands for events that have no identity of their own."""
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
        raise Invalid(f"{header} must be a text of 1 to {NAME_CHARS_MAX} characters")
    return text
