"""A database of each kind with the tables in it, a clock that stands still, and what is built on them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog.identity import secrets
from catalog.identity.principals import PrincipalStore
from catalog.identity.tokens import TokenIdentity
from catalog.store import schema
from catalog.store.database import Database
from tests.harness.postgres import PostgresServer
from tests.unit.identity.clock import Clock

LIFETIME_S = 600


@pytest.fixture(scope="session")
def postgres_url(postgres: PostgresServer) -> str:
    """One database for all tests here, emptied by each: one for each would cost more than the tests."""
    return postgres.database()


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """With the tables, and nothing in those of identity."""
    in_file = request.param == "sqlite"
    opened = Database(
        f"sqlite:///{tmp_path}/catalog.db" if in_file else request.getfixturevalue("postgres_url")
    )
    schema.metadata.create_all(opened.engine)
    with opened.engine.begin() as connection:
        for table in (schema.tokens, schema.grants, schema.principals):
            connection.execute(table.delete())
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture(autouse=True)
def quick_hashes(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Hundreds of secrets are made here; test_hashing.py alone pays the real price."""
    if request.module.__name__.rpartition(".")[2] != "test_hashing":
        monkeypatch.setattr(secrets, "SCRYPT_N", 2**6)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(database: Database) -> PrincipalStore:
    return PrincipalStore(database)


@pytest.fixture
def identity(database: Database, clock: Clock) -> TokenIdentity:
    return TokenIdentity(database, LIFETIME_S, now_ms=clock)
