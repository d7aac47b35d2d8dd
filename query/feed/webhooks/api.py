"""Routes of webhooks, for administrators of a warehouse."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, ConfigDict, Field

from catalog.api.dependencies import AdminWarehouse, CallerDep
from catalog.moments import AtTime
from query.feed.feed import SubscribeRequest
from query.feed.filters import NAMES_MAX
from query.feed.webhooks.addresses import URL_CHARS_MAX, checked_url
from query.feed.webhooks.service import WebhookService
from query.feed.webhooks.signing import checked_secret, new_secret
from query.feed.webhooks.store import Webhook

router = APIRouter(prefix="/lake/v1/{warehouse}/webhooks", tags=["Webhooks"])

Names = Annotated[list[str] | None, Field(max_length=NAMES_MAX)]


class WebhookBody(BaseModel):
    model_config = ConfigDict(extra="forbid")
    url: str = Field(max_length=URL_CHARS_MAX, examples=["https://example.com/changes"])
    tables: Names = Field(None, description="Names and patterns such as `shop.*`; default: all")
    operations: Names = Field(None, description="insert, update, delete, truncate; default: all")
    where: str | None = Field(None, description="A predicate on the row before or after the change")
    columns: Names = Field(None, description="Names of columns; default: all")
    from_: str | None = Field(
        None, alias="from", description="A token, a number or a time to begin at; default: now"
    )
    secret: str | None = Field(
        None,
        description="`whsec_` and base64 of 24 to 64 bytes, to sign with; made here if left out",
    )


class ResumeBody(BaseModel):
    model_config = ConfigDict(extra="forbid")
    from_: str | None = Field(
        None, alias="from", description="Resume here; default: after the last change that was accepted"
    )


class WebhookAnswer(BaseModel):
    id: str
    url: str
    tables: list[str] | None
    operations: list[str] | None
    where: str | None
    columns: list[str] | None
    principal: str = Field(description="Who created it; it delivers what this principal may read")
    created: str
    state: str = Field(description="`active`, or `dead` after too many failures")
    token: str = Field(description="Everything up to this token was accepted")
    attempts: int = Field(description="Failures since the last success")
    next_attempt: str | None
    last_error: str | None
    last_success: str | None


class NewWebhook(WebhookAnswer):
    secret: str = Field(description="Shown here only")


class WebhookList(BaseModel):
    webhooks: list[WebhookAnswer]


class TestAnswer(BaseModel):
    accepted: bool
    status: int | None = Field(description="Of the receiver's response; null if there was none")
    message: str
    duration_ms: float


async def _service(request: Request) -> WebhookService:
    service: WebhookService = request.app.state.webhooks
    return service


ServiceDep = Annotated[WebhookService, Depends(_service)]
WebhookId = Annotated[str, Path(description="The id of a webhook")]

_GONE: dict[int | str, dict[str, Any]] = {
    410: {"description": "`must-refetch`: the changes after the token are no longer all there."}
}


@router.post("", operation_id="createWebhook", response_model=NewWebhook, responses=_GONE)
async def create_webhook(
    service: ServiceDep, caller: CallerDep, warehouse: AdminWarehouse, body: WebhookBody
) -> Any:
    """Create a webhook: changes are posted to an address from now on. The response has the secret for the
    receiver.
    """
    url = checked_url(body.url, private=service.private)
    secret = checked_secret(body.secret) if body.secret is not None else new_secret()
    wanted = body.model_dump(include={"tables", "operations", "where", "columns"})
    token = await _begin(service, warehouse, wanted, body.from_, caller.name)
    made = await run_in_threadpool(service.store.create, warehouse, url, secret, wanted, caller.name, token)
    return _shown(made) | {"secret": secret}


@router.get("", operation_id="listWebhooks", response_model=WebhookList)
def list_webhooks(service: ServiceDep, warehouse: AdminWarehouse) -> Any:
    """List all webhooks with their progress; dead ones too, for 30 days."""
    return {"webhooks": [_shown(one) for one in service.store.all(warehouse)]}


@router.get("/{webhook_id}", operation_id="loadWebhook", response_model=WebhookAnswer)
def load_webhook(service: ServiceDep, warehouse: AdminWarehouse, webhook_id: WebhookId) -> Any:
    """Load one webhook."""
    return _shown(service.store.one(warehouse, webhook_id))


@router.delete("/{webhook_id}", operation_id="deleteWebhook", status_code=204)
def delete_webhook(service: ServiceDep, warehouse: AdminWarehouse, webhook_id: WebhookId) -> None:
    """Delete a webhook. A request that has begun is finished."""
    service.store.delete(warehouse, webhook_id)


@router.post("/{webhook_id}/test", operation_id="testWebhook", response_model=TestAnswer)
async def check_webhook(service: ServiceDep, warehouse: AdminWarehouse, webhook_id: WebhookId) -> Any:
    """Post a signed request of the type `test` now, and return the response of the receiver."""
    webhook = await run_in_threadpool(service.store.one, warehouse, webhook_id)
    result = await service.poster.test(webhook)
    return {
        "accepted": result.is_accepted,
        "status": result.status,
        "message": result.text,
        "duration_ms": result.duration_ms,
    }


@router.post(
    "/{webhook_id}/resume", operation_id="resumeWebhook", response_model=WebhookAnswer, responses=_GONE
)
async def resume_webhook(
    service: ServiceDep,
    warehouse: AdminWarehouse,
    webhook_id: WebhookId,
    body: ResumeBody | None = None,
) -> Any:
    """Resume a dead webhook, or retry one that waits for its next attempt, at once."""
    webhook = await run_in_threadpool(service.store.one, warehouse, webhook_id)
    token = None
    if body is not None and body.from_ is not None:
        token = await _begin(service, warehouse, webhook.wanted, body.from_, webhook.principal)
    return _shown(await run_in_threadpool(service.store.resume, warehouse, webhook_id, token))


async def _begin(
    service: WebhookService, warehouse: str, wanted: dict[str, Any], from_: str | None, principal: str
) -> str:
    """Return the token to begin with. Raises the errors of a refused subscription."""
    request = SubscribeRequest(warehouse, from_=from_, **wanted)
    subscription = await service.feed.open_with(request, service.rights(principal, warehouse))
    return subscription.cursor.token


def _shown(webhook: Webhook) -> dict[str, Any]:
    return {
        "id": webhook.id,
        "url": webhook.url,
        **{name: webhook.wanted.get(name) for name in ("tables", "operations", "where", "columns")},
        "principal": webhook.principal,
        "created": str(AtTime(webhook.created_ms)),
        "state": webhook.state,
        "token": webhook.token,
        "attempts": webhook.attempts,
        "next_attempt": str(AtTime(webhook.next_attempt_ms)) if webhook.attempts else None,
        "last_error": webhook.last_error,
        "last_success": None if webhook.last_success_ms is None else str(AtTime(webhook.last_success_ms)),
    }
