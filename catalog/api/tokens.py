"""`POST /v1/oauth/tokens`: a bearer token for the name and secret of a principal."""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from catalog.api.calls import JSON, Answer, Call
from catalog.identity.oauth import RESPONSE_HEADERS, OAuthError, parse_token_request
from catalog.identity.ports import TokenIssuer


def get_token(call: Call, issuer: TokenIssuer) -> Answer:
    try:
        grant = parse_token_request(
            authorization=_header(call, b"authorization"),
            content_type=_header(call, b"content-type"),
            body=call.body,
        )
        return Answer(200, orjson.dumps(issuer.issue(grant)), [JSON, *_encoded(RESPONSE_HEADERS)])
    except OAuthError as error:
        return Answer(error.status, orjson.dumps(error.body), [JSON, *_encoded(error.headers)])


def _header(call: Call, name: bytes) -> str | None:
    value = call.headers.get(name)
    return value.decode("latin-1") if value is not None else None


def _encoded(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode()) for name, value in headers.items()]
