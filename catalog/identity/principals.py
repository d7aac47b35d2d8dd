"""Principals as an administrator handles them: create, grant, revoke, disable, rotate, delete.

A secret is made here, returned once and kept only as a hash. Every change is felt by the next request: taking
a secret or a principal away takes its tokens away in the same transaction.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence

from catalog.errors import AlreadyExists, Conflict, Invalid, Unavailable
from catalog.identity.hashing import new_secret, new_token, secret_hash, token_hash
from catalog.identity.records import Principal, Records
from catalog.identity.roles import EVERY_WAREHOUSE, Role, is_principal_name
from catalog.names import check_warehouse_name
from catalog.store.database import Database

OWN_CREDENTIAL_LIFETIME_S = 366 * 24 * 3600


class PrincipalStore:
    """Raises Invalid, AlreadyExists and NotFound."""

    def __init__(self, database: Database) -> None:
        self._records = Records(database)

    def create(self, name: str, roles: Mapping[str, Role]) -> str:
        """A new principal with its roles by warehouse ("*": every one). Returns its secret."""
        _check_name(name)
        for warehouse in roles:
            _check_warehouse(warehouse)
        secret = new_secret()
        self._records.add_principal(name, secret_hash(secret), roles, time.time_ns() // 1_000_000)
        return secret

    def list(self) -> Sequence[Principal]:
        """All of them, by name."""
        return self._records.principals()

    def grant(self, name: str, warehouse: str, role: Role) -> None:
        """Give a role in a warehouse, in place of the one the principal had there."""
        _check_name(name)
        self._records.set_grant(name, _check_warehouse(warehouse), role)

    def revoke(self, name: str, warehouse: str) -> None:
        """Take the role in a warehouse away. A role in "*" is another grant and stays."""
        _check_name(name)
        self._records.drop_grant(name, _check_warehouse(warehouse))

    def disable(self, name: str) -> None:
        """No new tokens, and the present ones are over. Grants are kept."""
        _check_name(name)
        self._records.set_disabled(name, True)

    def enable(self, name: str) -> None:
        _check_name(name)
        self._records.set_disabled(name, False)

    def rotate(self, name: str) -> str:
        """A new secret. The old one and the tokens from it are over."""
        _check_name(name)
        secret = new_secret()
        self._records.set_secret(name, secret_hash(secret))
        return secret

    def own_credential(self, name: str, roles: Mapping[str, Role]) -> str:
        """A secret for one process that the server starts itself; the principal is created if it is missing.

        It is a token of long life, which identity/tokens.py accepts in place of the secret. So any number of
        servers have one each, and none ends another's. It ends with the others when an administrator rotates,
        disables or deletes the principal.
        """
        with contextlib.suppress(AlreadyExists):
            self.create(name, roles)
        holder = self._records.client(name)
        if holder is None:
            raise Conflict(
                f"The principal {name} is disabled: enable it, or turn the worker of this server off"
            )
        token = new_token()
        key = token_hash(token)
        assert key is not None
        now_ms = time.time_ns() // 1_000_000
        expires_ms = now_ms + OWN_CREDENTIAL_LIFETIME_S * 1000
        if not self._records.add_token(holder, key, now_ms=now_ms, expires_ms=expires_ms):
            raise Unavailable(f"The principal {name} was changed in this moment: try again")
        return token

    def delete(self, name: str) -> None:
        """The principal with its grants and tokens. Its name stays in the history of what it did."""
        _check_name(name)
        self._records.drop_principal(name)


def _check_name(name: str) -> str:
    if not is_principal_name(name):
        raise Invalid(
            "Invalid principal name: use 1 to 63 letters, digits, '.', '_', '@' or '-', "
            "beginning with a letter or digit"
        )
    return name


def _check_warehouse(warehouse: str) -> str:
    return warehouse if warehouse == EVERY_WAREHOUSE else check_warehouse_name(warehouse)
