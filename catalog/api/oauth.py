"""`POST /v1/oauth/tokens`: a bearer token for the name and secret of a principal."""

from __future__ import annotations

from typing import Annotated

import orjson
from fastapi import APIRouter, Depends, Request, Response

from catalog.api import spec
from catalog.api.responses import JSON
from catalog.identity.base import TokenIssuer
from catalog.identity.oauth import RESPONSE_HEADERS, parse_token_request

router = APIRouter(tags=["OAuth2 API"])

OAUTH_ERROR = "OAuthErrorResponse"


async def form_bytes(request: Request) -> bytes:
    return await request.body()


@router.post(
    "/v1/oauth/tokens",
    operation_id="getToken",
    summary="A bearer token for the name and secret of a principal",
    **spec.token_operation(
        "OAuthTokenResponse",
        errors={"400": OAUTH_ERROR, "401": OAUTH_ERROR, "5XX": OAUTH_ERROR},
        body="OAuthTokenRequest",
    ),
)
def get_token(request: Request, body: Annotated[bytes, Depends(form_bytes)]) -> Response:
    issuer: TokenIssuer = request.app.state.identity
    grant = parse_token_request(
        authorization=request.headers.get("authorization"),
        content_type=request.headers.get("content-type"),
        body=body,
    )
    return Response(orjson.dumps(issuer.issue(grant)), headers=dict(RESPONSE_HEADERS), media_type=JSON)
