"""PostgreSQL behind the server has bounds: connections, time for a statement, time for a lock."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from calve.bootstrap import JOURNAL_POOL_SIZE
from catalog.errors import Unavailable
from catalog.store.database import Database
from tests.harness.postgres import PostgresServer
from tests.harness.rest import Rest, append_body
from tests.harness.stacks import Stack, Stacks

CLIENTS = 64
POOL_SIZE = 6


@pytest.fixture
def bounded(stacks: Stacks, tmp_path: Path) -> Iterator[Stack]:
    settings = {"CALVE_DATABASE_POOL_SIZE": str(POOL_SIZE), "CALVE_DATABASE_LOCK_TIMEOUT_S": "0.5"}
    with stacks.started("postgres-s3", tmp_path, settings) as started:
        yield started


def _plain_url(stack: Stack) -> str:
    return stack.database.replace("+psycopg", "")


def test_64_clients_do_not_open_more_connections_than_the_settings_allow(bounded: Stack) -> None:
    rest = Rest(bounded.url)
    namespace = rest.fresh_namespace()
    metadata = rest.create(namespace, "t")["metadata"]

    def client(number: int) -> set[int]:
        own = Rest(bounded.url)
        seen = set()
        for _ in range(3):
            for path in (
                own.table_path(namespace, "t"),
                own.namespace_path(namespace, "tables"),
                own.namespace_path(namespace),
                "/v1/config",
                "/lake/v1/warehouses",
            ):
                seen.add(own.call("GET", path).status_code)
            if number % 4 == 0:
                seen.add(
                    own.call("POST", own.table_path(namespace, "t"), json=append_body(metadata)).status_code
                )
        return seen

    with _counted_connections(bounded) as counts, ThreadPoolExecutor(CLIENTS) as threads:
        statuses = set().union(*threads.map(client, range(CLIENTS)))
    assert statuses <= {200, 409}
    assert 2 <= max(counts) <= POOL_SIZE + JOURNAL_POOL_SIZE


@contextlib.contextmanager
def _counted_connections(stack: Stack) -> Iterator[list[int]]:
    """How many connections the server had, looked at again and again."""
    counts: list[int] = []
    ended = threading.Event()
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> %s"

    def count() -> None:
        with psycopg.connect(_plain_url(stack), autocommit=True) as connection:
            while not ended.wait(0.005):
                row = connection.execute(query, [connection.info.backend_pid]).fetchone()
                assert row is not None
                counts.append(row[0])

    counting = threading.Thread(target=count)
    counting.start()
    try:
        yield counts
    finally:
        ended.set()
        counting.join()


def test_a_commit_to_a_locked_row_is_refused_and_can_be_sent_again(bounded: Stack) -> None:
    rest = Rest(bounded.url)
    namespace = rest.fresh_namespace()
    metadata = rest.create(namespace, "t")["metadata"]
    path, body = rest.table_path(namespace, "t"), append_body(metadata)
    with psycopg.connect(_plain_url(bounded)) as connection:
        connection.execute("SELECT 1 FROM entries WHERE name = 't' FOR UPDATE")
        refused = rest.call("POST", path, json=body)
        connection.rollback()
    assert refused.status_code in (409, 503)
    assert "nothing was changed" in refused.json()["error"]["message"]
    assert rest.call("POST", path, json=body).status_code == 200


def test_a_statement_that_takes_too_long_ends(postgres: PostgresServer) -> None:
    database = Database(postgres.database(), statement_timeout_s=0.2)
    slow = sa.text("SELECT pg_sleep(3600)")
    try:
        with pytest.raises(Unavailable):
            database.fetch_all(slow)
        with pytest.raises(Unavailable):
            database.write(lambda connection: connection.execute(slow))
        assert database.fetch_all(sa.text("SELECT 1"))[0][0] == 1
    finally:
        database.close()


def test_options_in_the_address_are_used(postgres: PostgresServer) -> None:
    url = (
        postgres.database() + "?connect_timeout=5&application_name=calve-test&options=-c%20lock_timeout%3D7s"
    )
    database = Database(url, statement_timeout_s=3)
    try:
        shown = [
            database.fetch_all(sa.text(f"SHOW {name}"))[0][0]
            for name in ("application_name", "lock_timeout", "statement_timeout")
        ]
    finally:
        database.close()
    assert shown == ["calve-test", "7s", "3s"]
