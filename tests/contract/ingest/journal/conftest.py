"""Journals on both databases: every behaviour is shown on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ingest.journal.journal import Journal
from tests.contract.ingest.journal.journal_setup import Clock, Place
from tests.harness.postgres import PostgresServer

DATABASES = ("sqlite", "postgres")


@pytest.fixture(scope="session")
def postgres_journal(postgres: PostgresServer) -> Place:
    """One database for all tests in turn: to make one for each costs more than most of them."""
    return Place.fresh(postgres.database())


@pytest.fixture(params=DATABASES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty journal of this test alone."""
    if request.param == "sqlite":
        return Place.fresh(f"sqlite:///{tmp_path}/journal.db")
    place: Place = request.getfixturevalue("postgres_journal")
    place.clear()
    return place


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def journal(place: Place, clock: Clock) -> Iterator[Journal]:
    with place.opened(clock=clock) as opened:
        yield opened
