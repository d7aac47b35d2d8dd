"""Writes in one round trip do to PostgreSQL what the ordinary writes do, and raise the same errors."""

from __future__ import annotations

import contextlib
import random
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from catalog.errors import CommitStateUnknown
from catalog.fast.one_round_trip import OneRoundTrip
from catalog.models import IdempotencyKeyConflict, IdempotencyRecord
from catalog.services import commits, tables, views
from catalog.services.catalog import Catalog
from catalog.services.commits import TableCommit
from catalog.services.writes import WriteContext
from catalog.store.schema import dropped, entries, heads, history, idempotency, locations
from tests.concurrency.catalog_address import (
    CONTEXT,
    CatalogAddress,
    create_tables,
    gaps,
    problems,
    state,
    table,
)
from tests.harness.rest import SCHEMA
from tests.harness.stacks import Stacks

VIEW = {
    "schema": SCHEMA,
    "view-version": {
        "version-id": 1,
        "timestamp-ms": 1,
        "schema-id": 0,
        "summary": {},
        "default-namespace": ["db"],
        "representations": [{"type": "sql", "sql": "SELECT 1", "dialect": "spark"}],
    },
    "properties": {},
}
FAR_FUTURE_MS = 1 << 50
Operation = Callable[[Catalog], object]


class Observed(OneRoundTrip):
    """Counts the writes that it has done itself, and those that it left to the ordinary write."""

    def __init__(self) -> None:
        super().__init__()
        self.done = self.left = 0

    def write_changes(self, *given: Any) -> tuple[int, int] | None:
        written = super().write_changes(*given)
        self.done += written is not None
        self.left += written is None
        return written


@contextlib.contextmanager
def opened(address: CatalogAddress, writer: OneRoundTrip | None) -> Iterator[Catalog]:
    with address.opened() as catalog:
        if writer is not None:
            catalog.database._writer = writer
        yield catalog


@pytest.fixture
def addresses(stacks: Stacks, tmp_path: Path) -> list[CatalogAddress]:
    return [CatalogAddress.fresh(stacks, "postgres-s3", tmp_path, local_files=True) for _ in range(2)]


@pytest.fixture
def address(addresses: list[CatalogAddress]) -> CatalogAddress:
    return addresses[0]


def rows(catalog: Catalog) -> list[list[tuple[Any, ...]]]:
    """Everything that does not depend on random ids or on the time."""
    queries = (
        sa.select(
            entries.c.namespace, entries.c.name, entries.c.kind, entries.c.version, entries.c.protected
        ),
        sa.select(heads.c.warehouse, heads.c.number),
        sa.select(
            *(history.c[name] for name in ("number", "ordinal", "operation", "kind", "namespace", "name")),
            *(history.c[name] for name in ("present", "version", "principal")),
        ),
        sa.select(sa.func.count()).select_from(locations),
        sa.select(dropped.c.kind, dropped.c.name, dropped.c.principal, dropped.c.expires_ms > 0),
        # Expired records are deleted now and then.
        sa.select(idempotency.c.key, idempotency.c.status).where(idempotency.c.expires_ms > 1),
    )
    return [sorted(tuple(row) for row in catalog.database.fetch_all(query)) for query in queries]


def outcome(operation: Operation, catalog: Catalog) -> str:
    try:
        operation(catalog)
    except Exception as error:  # noqa: BLE001 - the two must fail alike
        return f"{type(error).__name__}: {str(error).partition(':')[0]}"
    return "done"


def commit(*names: str, context: WriteContext = CONTEXT) -> Operation:
    updates = [{"action": "set-properties", "updates": {"p": uuid.uuid4().hex}}]
    wanted = [TableCommit(table(name), [], updates) for name in names]
    return lambda catalog: commits.commit_tables(catalog, state(catalog), context, wanted)


def create(name: str, **given: Any) -> Operation:
    request = {"name": name, "schema": SCHEMA, **given}
    return lambda catalog: tables.create(catalog, state(catalog), CONTEXT, table(name), request)


def create_inside(name: str, other: str) -> Operation:
    """A table whose location is inside that of another one."""

    def work(catalog: Catalog) -> object:
        entry = state(catalog).entry("db", other)
        place = str(entry.metadata_location).partition("/metadata/")[0] if entry else None
        return create(name, **({"location": f"{place}/inside"} if place else {}))(catalog)

    return work


def create_view(name: str) -> Operation:
    return lambda catalog: views.create(catalog, state(catalog), CONTEXT, table(name), {"name": name, **VIEW})


def drop(name: str, kind: Any = "table", *, forever: bool = False) -> Operation:
    return lambda catalog: tables.drop(catalog, state(catalog), CONTEXT, table(name), kind, forever=forever)


def protect(name: str, protected: bool) -> Operation:
    return lambda catalog: tables.protect(catalog, state(catalog), table(name), protected)


def rename(name: str, other: str) -> Operation:
    return lambda catalog: tables.rename(catalog, state(catalog), CONTEXT, table(name), table(other))


def with_key(key: str, expires_ms: int = FAR_FUTURE_MS) -> WriteContext:
    return replace(
        CONTEXT, record=IdempotencyRecord("tester", "updateTable", "main:x", key, "hash", expires_ms)
    )


def some(chance: random.Random) -> Operation:
    name, other = chance.sample(["a", "b", "c", "d"], 2)
    keys = [str(uuid.UUID(int=number)) for number in range(3)]
    return chance.choice(
        [
            create(name),
            create(name),
            create_inside(name, other),
            create_view(name),
            commit(name),
            commit(name, other),
            commit(name, context=with_key(chance.choice(keys))),
            commit(name, other, context=with_key(chance.choice(keys), expires_ms=1)),
            drop(name),
            drop(name, forever=True),
            drop(name, "view"),
            protect(name, True),
            protect(name, False),
            rename(name, other),
        ]
    )


@pytest.mark.parametrize("seed", range(3))
def test_both_ways_leave_the_same_rows_and_fail_alike(addresses: list[CatalogAddress], seed: int) -> None:
    chance, writer = random.Random(seed), Observed()
    with opened(addresses[0], writer) as fast, opened(addresses[1], None) as plain:
        for catalog in (fast, plain):
            create_tables(catalog, "a", "b")
        for step in range(40):
            operation = some(chance)
            assert outcome(operation, fast) == outcome(operation, plain), f"step {step}"
            assert rows(fast) == rows(plain), f"step {step}"
        assert gaps(fast) == []
        assert problems(fast) == []
    assert writer.done > 5
    assert writer.left > 0


def test_writers_at_the_same_time_lose_nothing(address: CatalogAddress) -> None:
    with opened(address, Observed()) as catalog:
        create_tables(catalog, "a", "b")

        def work(number: int) -> None:
            commit(*(("a", "b") if number % 2 else ("b", "a")))(catalog)
            create(f"t{number}")(catalog)
            drop(f"t{number}")(catalog)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(12)))
        assert gaps(catalog) == []
        head = catalog.entries.number("main")
        assert head is not None
        assert head[0] == 39
        [_, a] = [row for row in rows(catalog)[0] if row[0] == "db" and row[1] in ("", "a")]
        assert a[3] == 14


def test_a_used_key_writes_nothing(address: CatalogAddress) -> None:
    key = str(uuid.uuid4())
    with opened(address, Observed()) as catalog:
        create_tables(catalog, "a")
        commit("a", context=with_key(key))(catalog)
        before = rows(catalog)
        with pytest.raises(IdempotencyKeyConflict):
            commit("a", context=with_key(key))(catalog)
        assert rows(catalog) == before


def _terminate(address: CatalogAddress) -> None:
    """End all connections of the catalog, as a restart of PostgreSQL does."""
    with psycopg.connect(address.database.replace("+psycopg", ""), autocommit=True) as own:
        own.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def test_a_connection_that_was_lost_while_idle_is_replaced(address: CatalogAddress) -> None:
    with opened(address, Observed()) as catalog:
        create_tables(catalog, "a")
        where, operation = state(catalog), commit("a")
        assert where.load("db", "a") is not None
        _terminate(address)
        operation(catalog)
        assert gaps(catalog) == []


def test_a_connection_that_is_lost_during_a_write_leaves_its_state_unknown(
    address: CatalogAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(address, Observed()) as catalog:
        create_tables(catalog, "a")
        execute = psycopg.Connection.execute

        def lose(connection: Any, *given: Any, **options: Any) -> Any:
            _terminate(address)
            return execute(connection, *given, **options)

        with monkeypatch.context() as patch:
            patch.setattr("catalog.fast.one_round_trip._has_ended", lambda _driver: False)
            patch.setattr(psycopg.Connection, "execute", lose)
            with pytest.raises(CommitStateUnknown):
                commit("a")(catalog)
        assert gaps(catalog) == []
