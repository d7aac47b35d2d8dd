"""A running door on each database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.contract.ingest.door.door_server import DoorServer, served


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each thread of a server has its own connection to PostgreSQL, which ends with the thread."""
    ignored = pytest.mark.filterwarnings("ignore:.*was deleted while still open:ResourceWarning")
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(ignored)


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> str | None:
    """The address of an empty PostgreSQL database, or None for SQLite files."""
    if request.param == "sqlite":
        return None
    address: str = request.getfixturevalue("postgres").database()
    return address


@pytest.fixture
def server(tmp_path: Path, database: str | None) -> Iterator[DoorServer]:
    """With the usual settings."""
    with served(tmp_path, database=database) as running:
        yield running


@pytest.fixture
def client(server: DoorServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as found:
        yield found
