"""The PostgreSQL of the harness: separate databases, durable settings, and data that survives a crash."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.harness.postgres import PostgresServer


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    with PostgresServer.started() as server:
        yield server


def _connect(url: str) -> psycopg.Connection:
    return psycopg.connect(url.replace("postgresql+psycopg", "postgresql"), autocommit=True)


def test_each_call_gives_an_empty_database_of_its_own(postgres: PostgresServer) -> None:
    first, second = postgres.database(), postgres.database()
    with _connect(first) as one, _connect(second) as other:
        one.execute("CREATE TABLE t (x int)")
        assert other.execute("SELECT to_regclass('t')").fetchone() == (None,)


def test_nothing_is_traded_for_speed(postgres: PostgresServer) -> None:
    with _connect(postgres.database()) as connection:
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            assert connection.execute(f"SHOW {setting}".encode()).fetchone() == ("on",)


def test_what_was_committed_is_there_after_a_crash_and_after_a_stop(own_postgres: PostgresServer) -> None:
    url = own_postgres.database()
    with _connect(url) as connection:
        connection.execute("CREATE TABLE t (x int)")
        connection.execute("INSERT INTO t VALUES (7)")
    own_postgres.kill()
    with pytest.raises(psycopg.OperationalError):
        _connect(url)
    own_postgres.start()
    own_postgres.stop()
    own_postgres.start()
    with _connect(url) as connection:
        assert connection.execute("SELECT x FROM t").fetchone() == (7,)
