"""The request and the errors of `/v1/oauth/tokens`, as defined by RFC 6749 and RFC 8693. Pure functions.

`parse_token_request` accepts what clients send: credentials in a Basic header, raw and not form-encoded
(DuckDB, PyIceberg's `oauth2` manager), or in the form (Java, PyIceberg); a Bearer header beside the form
(Java), which is ignored; an empty `scope=`. All parts have size limits. Messages repeat no part of the
request, because it may be a secret.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from catalog.identity.secrets import SECRET_CHARS_MAX
from catalog.models import is_principal_name

BODY_BYTES_MAX = 16 * 1024
AUTHORIZATION_CHARS_MAX = 2 * 1024
FIELDS_MAX = 32
SCOPE_CHARS_MAX = 1024

ACCESS_TOKEN_TYPE = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105
CLIENT_CREDENTIALS = "client_credentials"
TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"  # noqa: S105
FORM = "application/x-www-form-urlencoded"
# The Java client's default scope. The response contains it if the request has no scope.
DEFAULT_SCOPE = "catalog"

# Headers of every response of this endpoint (RFC 6749, 5.1).
RESPONSE_HEADERS: Mapping[str, str] = {"Cache-Control": "no-store"}

_SCOPE = re.compile(r"[\x20\x21\x23-\x5b\x5d-\x7e]*").fullmatch


class OAuthError(Exception):
    """An error in the form of RFC 6749, 5.2. It is not a CatalogError, because its body has another form."""

    def __init__(
        self, status: int, error: str, description: str, *, retry_after_s: int | None = None
    ) -> None:
        super().__init__(f"{error}: {description}")
        self.retry_after_s = retry_after_s
        self.status = status
        self.error = error
        self.description = description

    @property
    def body(self) -> dict[str, str]:
        return {"error": self.error, "error_description": self.description}

    @property
    def headers(self) -> Mapping[str, str]:
        headers = dict(RESPONSE_HEADERS)
        if self.status == 401:
            headers["WWW-Authenticate"] = 'Basic realm="calve"'
        if self.retry_after_s is not None:
            headers["Retry-After"] = str(self.retry_after_s)
        return headers


@dataclass(frozen=True, slots=True)
class Client:
    """Credentials as sent, not verified. The id has the form of a principal name."""

    client_id: str
    client_secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """`client_credentials`: a token for the client itself."""

    client: Client
    scope: str


@dataclass(frozen=True, slots=True)
class TokenExchange:
    """`token-exchange`, which clients use to renew a token before it expires."""

    subject_token: str = field(repr=False)
    client: Client | None
    scope: str


Grant = ClientCredentials | TokenExchange


def invalid_client() -> OAuthError:
    """The error for all wrong credentials: unknown, wrong, disabled and malformed are not distinguished."""
    return OAuthError(401, "invalid_client", "the client id or the client secret is wrong")


def invalid_request(description: str) -> OAuthError:
    return OAuthError(400, "invalid_request", description)


def parse_token_request(authorization: str | None, content_type: str | None, body: bytes) -> Grant:
    """The grant that the request contains. Raises OAuthError if it is missing or malformed."""
    form = _form(content_type, body)
    grant_type = form.get("grant_type")
    if not grant_type:
        raise invalid_request("grant_type is missing")
    if grant_type not in {CLIENT_CREDENTIALS, TOKEN_EXCHANGE}:
        raise OAuthError(
            400, "unsupported_grant_type", f"grant_type has to be {CLIENT_CREDENTIALS} or {TOKEN_EXCHANGE}"
        )
    scope = _scope(form)
    client = _client(authorization, form)
    if grant_type == TOKEN_EXCHANGE:
        return TokenExchange(_subject_token(form), client, scope)
    if client is None:
        raise invalid_client()
    return ClientCredentials(client, scope)


def _form(content_type: str | None, body: bytes) -> dict[str, str]:
    if len(body) > BODY_BYTES_MAX:
        raise invalid_request(f"the body is longer than {BODY_BYTES_MAX} bytes")
    media_type = (content_type or "").partition(";")[0].strip().lower()
    if media_type != FORM:
        raise invalid_request(f"the content type has to be {FORM}")
    try:
        fields = parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX)
    except ValueError:  # not UTF-8, or too many fields
        raise invalid_request("the form cannot be read") from None
    form = dict(fields)
    if len(form) != len(fields):
        raise invalid_request("a field is there more than once")
    return form


def _scope(form: Mapping[str, str]) -> str:
    scope = form.get("scope", "").strip(" ")
    if len(scope) > SCOPE_CHARS_MAX or _SCOPE(scope) is None:
        raise OAuthError(
            400, "invalid_scope", "the scope is too long or has characters that no scope may have"
        )
    return scope or DEFAULT_SCOPE


def _client(authorization: str | None, form: Mapping[str, str]) -> Client | None:
    in_header = _basic(authorization)
    in_form = None
    # A client_id without a secret proves nothing.
    if "client_secret" in form:
        in_form = _checked(form.get("client_id", ""), form["client_secret"])
    if in_header is not None and in_form is not None and in_header != in_form:
        raise invalid_request("the header and the form hold different credentials: send one of them")
    return in_header or in_form


def _basic(authorization: str | None) -> Client | None:
    scheme, _, value = (authorization or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    if len(value) > AUTHORIZATION_CHARS_MAX:
        raise invalid_client()
    try:
        text = base64.b64decode(value.strip(" "), validate=True).decode()
    except ValueError:  # not base64, or its content is not UTF-8
        raise invalid_client() from None
    # Split at the first colon: a secret may contain colons, a client id cannot.
    client_id, _, client_secret = text.partition(":")
    return _checked(client_id, client_secret)


def _checked(client_id: str, client_secret: str) -> Client:
    if not is_principal_name(client_id) or not 0 < len(client_secret) <= SECRET_CHARS_MAX:
        raise invalid_client()
    return Client(client_id, client_secret)


def _subject_token(form: Mapping[str, str]) -> str:
    subject_token = form.get("subject_token")
    if not subject_token:
        raise invalid_request("subject_token is missing")
    if form.get("subject_token_type") != ACCESS_TOKEN_TYPE:
        raise invalid_request(f"subject_token_type has to be {ACCESS_TOKEN_TYPE}")
    if form.get("requested_token_type", ACCESS_TOKEN_TYPE) != ACCESS_TOKEN_TYPE:
        raise invalid_request(f"requested_token_type has to be {ACCESS_TOKEN_TYPE}")
    return subject_token
