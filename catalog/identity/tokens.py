"""Identity by opaque bearer tokens: random, stored as a hash, looked up on every request.

Nothing is cached: one SELECT by primary key returns the principal and its roles. So a revoked grant, a
disabled principal or a rotated secret takes effect on the next request, on every server of the database.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from catalog.errors import CommitStateUnknown, NotAuthorized, Unavailable
from catalog.identity.oauth import (
    ACCESS_TOKEN_TYPE,
    Client,
    ClientCredentials,
    Grant,
    OAuthError,
    TokenExchange,
    invalid_client,
)
from catalog.identity.principals import Holder, Records
from catalog.identity.secrets import is_secret, new_token, token_hash
from catalog.models import Caller, Role
from catalog.store.database import Database

log = logging.getLogger(__name__)

# A scheme, some spaces and a token are far shorter; a longer header is not parsed.
AUTHORIZATION_CHARS_MAX = 128
REFUSAL = (
    "Not authorized: send a valid token as `Authorization: Bearer TOKEN`. Get one from /v1/oauth/tokens with "
    "the name and secret of a principal; `calve principal create NAME --role reader` creates a principal"
)


class TokenIdentity:
    """Implements Identity and TokenIssuer."""

    def __init__(
        self,
        database: Database,
        token_lifetime_s: int,
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        if token_lifetime_s <= 0:
            raise ValueError("token_lifetime_s has to be more than 0")
        self._records = Records(database)
        self._token_lifetime_s = token_lifetime_s
        self._now_ms = now_ms

    def identify(self, authorization: str | None) -> Caller:
        key = bearer_hash(authorization)
        found = self._records.grants_of(key, self._now_ms()) if key is not None else ()
        caller = caller_from_rows(found)
        if caller is None:
            raise NotAuthorized(REFUSAL)
        return caller

    def issue(self, grant: Grant) -> dict[str, Any]:
        try:
            return self._issue(grant)
        except (Unavailable, CommitStateUnknown) as error:
            # The error has this endpoint's form. If the token was written, the client does not know it.
            log.warning("could not issue a token", extra={"reason": error.message})
            raise OAuthError(
                503, "temporarily_unavailable", "no token could be issued; try again", retry_after_s=1
            ) from None

    def _issue(self, grant: Grant) -> dict[str, Any]:
        holder = self._holder(grant)
        token = new_token()
        key = token_hash(token)
        assert key is not None
        now_ms = self._now_ms()
        expires_ms = now_ms + self._token_lifetime_s * 1000
        if not self._records.add_token(holder, key, now_ms=now_ms, expires_ms=expires_ms):
            raise invalid_client()
        return {
            "access_token": token,
            "token_type": "bearer",
            "expires_in": self._token_lifetime_s,
            "issued_token_type": ACCESS_TOKEN_TYPE,
            "scope": grant.scope,
        }

    def _holder(self, grant: Grant) -> Holder:
        if isinstance(grant, ClientCredentials):
            return self._verified(grant.client)
        return self._exchanged(grant)

    def _verified(self, client: Client) -> Holder:
        """The principal, by its secret or by one of its own valid tokens, which it could exchange as well."""
        key = token_hash(client.client_secret)
        own = self._records.holder(key, self._now_ms()) if key is not None else None
        if own is not None and own.name == client.client_id:
            return own
        holder = self._records.client(client.client_id)
        # Also hashed for an unknown client: the response time must not reveal which ids exist.
        right = is_secret(client.client_secret, holder.secret_hash if holder is not None else None)
        if holder is None or not right:
            raise invalid_client()
        return holder

    def _exchanged(self, grant: TokenExchange) -> Holder:
        """The principal of the token.

        Java sends credentials beside its token once that has expired. Then the credentials count, and the
        token may have expired; but it must not be a valid token of another principal.
        """
        key = token_hash(grant.subject_token)
        subject = self._records.holder(key, self._now_ms()) if key is not None else None
        if grant.client is None:
            if subject is None:
                raise _invalid_grant()
            return subject
        client = self._verified(grant.client)
        if subject is not None and subject.name != client.name:
            raise _invalid_grant()
        return client


def caller_from_rows(rows: Sequence[tuple[str, str | None, str | None]]) -> Caller | None:
    """The caller from the rows of READ_CALLER; None if the token is not valid."""
    if not rows:
        return None
    roles: dict[str, Role] = {}
    for _, warehouse, word in rows:
        role = Role.known(word) if word is not None else None
        if warehouse is not None and role is not None:
            roles[warehouse] = role
    return Caller(rows[0][0], roles)


def bearer_hash(authorization: str | None) -> str | None:
    """The hash of the token in an `Authorization` header; None if it cannot be one."""
    if authorization is None or len(authorization) > AUTHORIZATION_CHARS_MAX:
        return None
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer":
        return None
    return token_hash(token.strip(" "))


def _invalid_grant() -> OAuthError:
    return OAuthError(400, "invalid_grant", "the subject token is wrong, over or revoked")
