"""Principals as an administrator handles them: create, grant, revoke, disable, rotate, delete.

A secret is made here, returned once and kept only as a hash. Every change is felt by the next request: taking
a secret or a principal away takes its tokens away in the same transaction.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from catalog.errors import Invalid
from catalog.identity.hashing import new_secret, secret_hash
from catalog.identity.records import Principal, Records
from catalog.identity.roles import EVERY_WAREHOUSE, Role, is_principal_name
from catalog.names import check_warehouse_name
from catalog.store.database import Database


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
