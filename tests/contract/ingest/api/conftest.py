"""A running API on each database."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from ingest.api import ApiSettings
from tests.contract.ingest.api.api_server import ApiServer, Producer, new_warehouse, served
from tests.harness.stacks import Stacks


@pytest.fixture(scope="session", params=["sqlite", "postgres"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def database(kind: str, stacks: Stacks) -> str | None:
    """The address of an empty PostgreSQL database, or None for SQLite files."""
    return stacks.postgres.database() if kind == "postgres" else None


@pytest.fixture(scope="session")
def server(kind: str, stacks: Stacks, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """With the usual settings, shared by many tests: each has a warehouse of its own."""
    database = stacks.postgres.database() if kind == "postgres" else None
    wide = ApiSettings(connections_per_s=10_000, connections_per_address_max=1_000)
    with served(tmp_path_factory.mktemp("api"), database=database, settings=wide) as running:
        yield running


@pytest.fixture
def warehouse(server: ApiServer) -> str:
    """A new, empty one."""
    return new_warehouse(server.catalog)


@pytest.fixture
def client(server: ApiServer, warehouse: str) -> Iterator[httpx.Client]:
    """Speaks to that warehouse."""
    with Producer(server.url, warehouse) as found:
        yield found
