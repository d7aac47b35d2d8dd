"""The interface of identity. Implementations: `open` and `tokens`. OIDC would be a third."""

from __future__ import annotations

from typing import Any, Protocol

from catalog.identity.oauth import Grant
from catalog.models import Caller


class Identity(Protocol):
    def identify(self, authorization: str | None) -> Caller:
        """The caller of an `Authorization` header (None: there was none).

        Raises NotAuthorized, always with the same message, so that it does not reveal which part was wrong.
        Nothing is cached between two calls, so a revoked token is refused on the next request.
        """


class TokenIssuer(Protocol):
    def issue(self, grant: Grant) -> dict[str, Any]:
        """The body of a token response (RFC 6749, 5.1). Raises OAuthError."""
