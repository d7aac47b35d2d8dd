"""Journals on both databases: every behaviour is shown on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ingest.journal.journal import Journal
from tests.contract.ingest.journal.journal_setup import Clock, JournalDatabase
from tests.harness.postgres import PostgresServer

DATABASES = ("sqlite", "postgres")


@pytest.fixture(scope="session")
def postgres_journal(postgres: PostgresServer) -> JournalDatabase:
    """One database for all tests in turn: to make one for each costs more than most of them."""
    return JournalDatabase.fresh(postgres.database())


@pytest.fixture(params=DATABASES)
def journal_database(request: pytest.FixtureRequest, tmp_path: Path) -> JournalDatabase:
    """An empty journal of this test alone."""
    if request.param == "sqlite":
        return JournalDatabase.fresh(f"sqlite:///{tmp_path}/journal.db")
    journal_database: JournalDatabase = request.getfixturevalue("postgres_journal")
    journal_database.clear()
    return journal_database


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def journal(journal_database: JournalDatabase, clock: Clock) -> Iterator[Journal]:
    with journal_database.opened(clock=clock) as opened:
        yield opened
