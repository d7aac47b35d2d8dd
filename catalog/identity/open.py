"""Identity of a server that listens on loopback only: every caller is an administrator, and there are no
tokens.

Settings refuse this mode on any other address.
"""

from __future__ import annotations

from typing import NoReturn

from catalog.identity.oauth import Grant, OAuthError
from catalog.models import EVERY_WAREHOUSE, Caller, Role

ANONYMOUS = Caller("anonymous", {EVERY_WAREHOUSE: Role.ADMIN})


class OpenIdentity:
    def identify(self, authorization: str | None) -> Caller:
        return ANONYMOUS

    def issue(self, grant: Grant) -> NoReturn:
        raise OAuthError(
            400, "unauthorized_client", "this server is open and issues no tokens: leave the credential out"
        )
