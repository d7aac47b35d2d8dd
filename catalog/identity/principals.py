"""Principals: create, grant, revoke, disable, rotate, delete.

A secret is created here, returned once and stored only as a hash. Every change takes effect on the next
request: removing a secret or a principal removes its tokens in the same transaction.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from catalog.errors import AlreadyExists, Conflict, Invalid, NotFound, Unavailable
from catalog.identity.secrets import new_secret, new_token, secret_hash, token_hash
from catalog.models import EVERY_WAREHOUSE, Role, is_principal_name
from catalog.names import check_warehouse_name
from catalog.store.database import Database
from catalog.store.schema import grants, principals, tokens

# How many expired tokens are deleted when a token is issued: more than the one added, and little work.
EXPIRED_DELETED_MAX = 100
_NOT_DISABLED = principals.c.disabled == 0
_LIVE_TOKEN = sa.and_(
    tokens.c.token_hash == sa.bindparam("token_hash"),
    tokens.c.expires_ms > sa.bindparam("now_ms"),
    _NOT_DISABLED,
)
READ_CALLER = (
    sa.select(principals.c.principal, grants.c.warehouse, grants.c.role)
    .select_from(
        tokens.join(principals, principals.c.principal == tokens.c.principal).outerjoin(
            grants, grants.c.principal == tokens.c.principal
        )
    )
    .where(_LIVE_TOKEN)
)
_HOLDER = (
    sa.select(principals.c.principal, principals.c.secret_hash)
    .select_from(tokens.join(principals, principals.c.principal == tokens.c.principal))
    .where(_LIVE_TOKEN)
)
_CLIENT = sa.select(principals.c.principal, principals.c.secret_hash).where(
    principals.c.principal == sa.bindparam("principal"), _NOT_DISABLED
)
_PRINCIPALS = sa.select(principals.c.principal, principals.c.created_ms, principals.c.disabled).order_by(
    principals.c.principal
)
_GRANTS = sa.select(grants.c.principal, grants.c.warehouse, grants.c.role).order_by(grants.c.warehouse)
OWN_CREDENTIAL_LIFETIME_S = 366 * 24 * 3600


@dataclass(frozen=True, slots=True)
class Holder:
    """A principal that may get a token while its secret has this hash."""

    name: str
    secret_hash: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Principal:
    """A principal as administrators see it."""

    name: str
    created_ms: int
    disabled: bool
    roles: Mapping[str, Role]


class Records:
    def __init__(self, database: Database) -> None:
        self._database = database

    # -- for requests ----------------------------------------------------------------------------------------

    def grants_of(self, token_hash: str, now_ms: int) -> Sequence[tuple[str, str | None, str | None]]:
        """(principal, warehouse, role) for each grant of a valid token's principal; one row of None if it has
        none.
        """
        return self._database.fetch_all(READ_CALLER, {"token_hash": token_hash, "now_ms": now_ms})

    def holder(self, token_hash: str, now_ms: int) -> Holder | None:
        row = self._database.fetch_one(_HOLDER, {"token_hash": token_hash, "now_ms": now_ms})
        return Holder(*row) if row is not None else None

    def client(self, name: str) -> Holder | None:
        row = self._database.fetch_one(_CLIENT, {"principal": name})
        return Holder(*row) if row is not None else None

    def add_token(self, holder: Holder, token_hash: str, *, now_ms: int, expires_ms: int) -> bool:
        """Store a token, unless the principal or its secret has changed since it was read."""

        def work(connection: sa.Connection) -> bool:
            if connection.scalar(_unchanged(holder)) is None:
                return False
            connection.execute(_delete_expired(now_ms))
            connection.execute(
                tokens.insert().values(token_hash=token_hash, principal=holder.name, expires_ms=expires_ms)
            )
            return True

        return self._database.write(work)

    # -- for administrators ---------------------------------------------------------------------------------

    def principals(self) -> Sequence[Principal]:
        roles: dict[str, dict[str, Role]] = {}
        for principal, warehouse, word in self._database.fetch_all(_GRANTS, {}):
            role = Role.known(word)
            if role is not None:
                roles.setdefault(principal, {})[warehouse] = role
        return [
            Principal(name, created_ms, bool(disabled), roles.get(name, {}))
            for name, created_ms, disabled in self._database.fetch_all(_PRINCIPALS, {})
        ]

    def add_principal(self, name: str, secret_hash: str, roles: Mapping[str, Role], now_ms: int) -> None:
        def work(connection: sa.Connection) -> None:
            connection.execute(
                principals.insert().values(
                    principal=name, secret_hash=secret_hash, created_ms=now_ms, disabled=0
                )
            )
            for warehouse, role in roles.items():
                connection.execute(
                    grants.insert().values(principal=name, warehouse=warehouse, role=str(role))
                )

        try:
            self._database.write(work)
        except IntegrityError:
            raise AlreadyExists(f"Principal already exists: {name}") from None

    def set_grant(self, name: str, warehouse: str, role: Role) -> None:
        def work(connection: sa.Connection) -> None:
            _lock(connection, name)
            connection.execute(_delete_grant(name, warehouse))
            connection.execute(grants.insert().values(principal=name, warehouse=warehouse, role=str(role)))

        self._database.write(work)

    def drop_grant(self, name: str, warehouse: str) -> None:
        def work(connection: sa.Connection) -> None:
            _lock(connection, name)
            if connection.execute(_delete_grant(name, warehouse)).rowcount == 0:
                raise NotFound(f"Principal {name} has no role of its own in {warehouse}")

        self._database.write(work)

    def set_disabled(self, name: str, disabled: bool) -> None:
        """Enable or disable a principal. Disabling deletes its tokens, so that enabling does not restore
        them.
        """

        def work(connection: sa.Connection) -> None:
            _update(connection, name, {"disabled": int(disabled)})
            if disabled:
                connection.execute(_delete_tokens(name))

        self._database.write(work)

    def set_secret(self, name: str, secret_hash: str) -> None:
        """Replace the secret. Tokens that were issued for the old secret are deleted."""

        def work(connection: sa.Connection) -> None:
            _update(connection, name, {"secret_hash": secret_hash})
            connection.execute(_delete_tokens(name))

        self._database.write(work)

    def drop_principal(self, name: str) -> None:
        def work(connection: sa.Connection) -> None:
            # The principal first, which is the row that `add_token` locks.
            if connection.execute(principals.delete().where(principals.c.principal == name)).rowcount == 0:
                raise _no_such_principal(name)
            connection.execute(_delete_tokens(name))
            connection.execute(grants.delete().where(grants.c.principal == name))

        self._database.write(work)


def _unchanged(holder: Holder) -> sa.Select[tuple[str]]:
    return (
        sa.select(principals.c.principal)
        .where(
            principals.c.principal == holder.name,
            principals.c.secret_hash == holder.secret_hash,
            principals.c.disabled == 0,
        )
        .with_for_update(read=True)
    )


def _delete_expired(now_ms: int) -> sa.Delete:
    expired = (
        sa.select(tokens.c.token_hash)
        .where(tokens.c.expires_ms <= now_ms)
        .order_by(tokens.c.expires_ms)
        .limit(EXPIRED_DELETED_MAX)
        .with_for_update(skip_locked=True)  # another process is deleting those
    )
    return tokens.delete().where(tokens.c.token_hash.in_(expired))


def _delete_tokens(name: str) -> sa.Delete:
    return tokens.delete().where(tokens.c.principal == name)


def _delete_grant(name: str, warehouse: str) -> sa.Delete:
    return grants.delete().where(grants.c.principal == name, grants.c.warehouse == warehouse)


def _lock(connection: sa.Connection, name: str) -> None:
    statement = sa.select(principals.c.principal).where(principals.c.principal == name).with_for_update()
    if connection.scalar(statement) is None:
        raise _no_such_principal(name)


def _update(connection: sa.Connection, name: str, values: Mapping[str, object]) -> None:
    changed = connection.execute(principals.update().where(principals.c.principal == name).values(values))
    if changed.rowcount == 0:
        raise _no_such_principal(name)


def _no_such_principal(name: str) -> NotFound:
    return NotFound(f"Principal does not exist: {name}")


class PrincipalStore:
    """Raises Invalid, AlreadyExists and NotFound."""

    def __init__(self, database: Database) -> None:
        self._records = Records(database)

    def create(self, name: str, roles: Mapping[str, Role]) -> str:
        """Create a principal with its roles by warehouse ("*": every warehouse). Returns its secret."""
        _check_name(name)
        for warehouse in roles:
            _check_warehouse(warehouse)
        secret = new_secret()
        self._records.add_principal(name, secret_hash(secret), roles, time.time_ns() // 1_000_000)
        return secret

    def list(self) -> Sequence[Principal]:
        """All principals, by name."""
        return self._records.principals()

    def grant(self, name: str, warehouse: str, role: Role) -> None:
        """Grant a role in a warehouse. It replaces the principal's role there."""
        _check_name(name)
        self._records.set_grant(name, _check_warehouse(warehouse), role)

    def revoke(self, name: str, warehouse: str) -> None:
        """Revoke the role in a warehouse. A role in "*" is another grant and stays."""
        _check_name(name)
        self._records.drop_grant(name, _check_warehouse(warehouse))

    def disable(self, name: str) -> None:
        """Delete the tokens of the principal and issue no new ones. Grants are kept."""
        _check_name(name)
        self._records.set_disabled(name, True)

    def enable(self, name: str) -> None:
        _check_name(name)
        self._records.set_disabled(name, False)

    def rotate(self, name: str) -> str:
        """Create a new secret. The old secret and its tokens become invalid."""
        _check_name(name)
        secret = new_secret()
        self._records.set_secret(name, secret_hash(secret))
        return secret

    def own_credential(self, name: str, roles: Mapping[str, Role]) -> str:
        """A credential for a process that the server starts itself. A missing principal is created.

        It is a long-lived token, which identity/tokens.py accepts in place of the secret. So each server has
        its own, and none invalidates another. It becomes invalid when an administrator rotates, disables or
        deletes the principal.
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
        """Delete the principal with its grants and tokens. Its name stays in the history."""
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
