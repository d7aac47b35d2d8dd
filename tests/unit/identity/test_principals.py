"""Principals on both databases: every action, its refusals, and that nothing is left behind."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from catalog.errors import AlreadyExists, Invalid, NotFound
from catalog.identity import secrets
from catalog.identity.oauth import Client, ClientCredentials
from catalog.identity.principals import PrincipalStore
from catalog.identity.tokens import TokenIdentity
from catalog.models import Role
from catalog.store import schema
from catalog.store.database import Database


def roles(store: PrincipalStore, name: str) -> dict[str, Role]:
    return next(dict(principal.roles) for principal in store.list() if principal.name == name)


def count(database: Database, table: sa.Table) -> int:
    with database.engine.connect() as connection:
        return connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()


def test_create_and_list(store: PrincipalStore) -> None:
    store.create("writer.b", {"main": Role.WRITER})
    store.create("Admin", {"*": Role.ADMIN, "other": Role.READER})
    store.create("nobody@example", {})
    found = store.list()
    assert [(one.name, one.disabled, dict(one.roles)) for one in found] == [
        ("Admin", False, {"*": Role.ADMIN, "other": Role.READER}),
        ("nobody@example", False, {}),
        ("writer.b", False, {"main": Role.WRITER}),
    ]
    assert all(one.created_ms > 1_700_000_000_000 for one in found)


def test_only_the_hash_is_stored(store: PrincipalStore, database: Database) -> None:
    secret = store.create("etl", {})
    with database.engine.connect() as connection:
        row = connection.execute(sa.select(schema.principals)).one()
    assert secret not in str(tuple(row))
    assert secrets.is_secret(secret, row.secret_hash)


def test_a_name_is_taken_once(store: PrincipalStore) -> None:
    store.create("etl", {"main": Role.READER})
    with pytest.raises(AlreadyExists, match="etl"):
        store.create("etl", {"main": Role.ADMIN})
    assert roles(store, "etl") == {"main": Role.READER}


@pytest.mark.parametrize(
    "name", ["", " ", "-x", ".x", "a b", "a/b", "a:b", "é", "a\n", "a\x00", "a" * 64, "*"]
)
def test_names_that_are_refused(store: PrincipalStore, name: str) -> None:
    with pytest.raises(Invalid, match="principal name"):
        store.create(name, {})
    with pytest.raises(Invalid, match="principal name"):
        store.grant(name, "main", Role.READER)
    assert store.list() == []


def test_warehouses_that_are_refused(store: PrincipalStore) -> None:
    with pytest.raises(Invalid, match="warehouse"):
        store.create("etl", {"a/b": Role.READER})
    store.create("etl", {})
    with pytest.raises(Invalid, match="warehouse"):
        store.grant("etl", "**", Role.READER)


def test_grant_replaces_and_revoke_removes(store: PrincipalStore) -> None:
    store.create("etl", {"main": Role.READER})
    store.grant("etl", "main", Role.ADMIN)
    store.grant("etl", "*", Role.READER)
    assert roles(store, "etl") == {"main": Role.ADMIN, "*": Role.READER}
    store.revoke("etl", "main")
    assert roles(store, "etl") == {"*": Role.READER}
    with pytest.raises(NotFound, match="no role"):
        store.revoke("etl", "main")


def test_delete_leaves_nothing(store: PrincipalStore, identity: TokenIdentity, database: Database) -> None:
    secret = store.create("etl", {"main": Role.READER, "*": Role.READER})
    kept = store.create("kept", {"main": Role.READER})
    identity.issue(ClientCredentials(Client("etl", secret), "catalog"))
    identity.issue(ClientCredentials(Client("kept", kept), "catalog"))
    store.delete("etl")
    assert [one.name for one in store.list()] == ["kept"]
    assert count(database, schema.grants) == count(database, schema.tokens) == 1


def test_an_absent_principal_is_not_found(store: PrincipalStore) -> None:
    for action in (
        lambda: store.grant("etl", "main", Role.READER),
        lambda: store.revoke("etl", "main"),
        lambda: store.disable("etl"),
        lambda: store.enable("etl"),
        lambda: store.rotate("etl"),
        lambda: store.delete("etl"),
    ):
        with pytest.raises(NotFound, match="Principal does not exist: etl"):
            action()


def test_a_role_this_version_does_not_know_gives_nothing(store: PrincipalStore, database: Database) -> None:
    store.create("etl", {})
    database.write(
        lambda connection: connection.execute(
            schema.grants.insert().values(principal="etl", warehouse="main", role="owner")
        )
    )
    assert roles(store, "etl") == {}
