"""The rows of transactions: they go when a transaction ends, and nothing is kept for ever."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from catalog.locations import Location
from catalog.models import CatalogEntry, EntryChange, Transaction, WriteRequest
from catalog.store import migrations, schema
from catalog.store.database import Database
from catalog.store.transactions import CLOSED_KEPT_MS, DELETED_AT_A_TIME, TransactionStore
from catalog.store.warehouses import WarehouseStore
from tests.harness.postgres import PostgresServer
from tests.harness.rest import Rest
from tests.harness.stacks import Stack

NOW_MS = 1_763_280_000_000
TTL_MS = 60_000


def staged_rows(url: str, name: str) -> int:
    """How many staged rows the transactions of this name have."""
    ours = sa.select(schema.transactions.c.id).where(schema.transactions.c.name == name)
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.connect() as connection:
        statement = sa.select(sa.func.count()).where(schema.staged.c.transaction_id.in_(ours))
        count: int = connection.execute(statement).scalar_one()
    engine.dispose()
    return count


@pytest.mark.parametrize("end", ["publish", "abort"])
def test_a_transaction_that_ends_leaves_no_staged_rows(stack: Stack, end: str) -> None:
    rest, name = Rest(stack.url), f"w-{uuid.uuid4().hex[:8]}"
    namespace = rest.fresh_namespace()
    rest.create(namespace, "t")
    inside = rest.open_transaction(name)
    inside.append(namespace, "t")
    inside.create(namespace, "new")
    assert staged_rows(stack.database, name) == 2
    if end == "publish":
        answer = rest.publish(name)
        assert answer.status_code == 200, answer.text
        assert len(answer.json()["touched"]) == 2
        assert rest.publish(name).json()["number"] == answer.json()["number"]
    else:
        assert rest.lake("DELETE", f"main/transactions/{name}").status_code == 204
    assert staged_rows(stack.database, name) == 0
    shown = rest.lake("GET", f"main/transactions/{name}").json()
    assert (shown["state"], shown["touched"]) == ({"publish": "committed", "abort": "aborted"}[end], [])


class Store:
    """Transactions on a database of their own."""

    def __init__(self, database: Database) -> None:
        self.database = database
        migrations.migrate(database)
        WarehouseStore(database).create("main", Location.parse("file:///lake"), NOW_MS)
        self.transactions = TransactionStore(database)

    def open(self, name: str, now_ms: int = NOW_MS) -> Transaction:
        """One that holds a table back."""
        opened = self.transactions.open(str(uuid.uuid4()), "main", name, now_ms, TTL_MS, "tester")
        entry = CatalogEntry("table", "db", "t", str(uuid.uuid4()), 1, "file:///lake/t", b"{}")
        change = EntryChange("create-table", "table", "db", "t", None, entry)
        self.transactions.stage(opened, WriteRequest([change], "tester", now_ms))
        return opened

    def states(self) -> dict[str, str]:
        query = sa.select(schema.transactions.c.name, schema.transactions.c.state)
        with self.database.engine.connect() as connection:
            return {row.name: row.state for row in connection.execute(query)}

    def staged(self) -> int:
        with self.database.engine.connect() as connection:
            return connection.execute(sa.select(sa.func.count()).select_from(schema.staged)).scalar_one()


@pytest.fixture(params=("sqlite", "postgres"))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/catalog.db"
    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        url = server.database()
    database = Database(url, pool_size=2)
    yield Store(database)
    database.close()


def test_a_sweep_closes_expired_transactions_and_deletes_what_they_held(store: Store) -> None:
    store.open("over")
    store.open("open", NOW_MS + 1)
    store.transactions.sweep("main", NOW_MS + TTL_MS - 1)
    assert (store.states(), store.staged()) == ({"over": "open", "open": "open"}, 2)
    store.transactions.sweep("main", NOW_MS + TTL_MS)
    assert (store.states(), store.staged()) == ({"over": "expired", "open": "open"}, 1)


def test_closed_transactions_are_deleted_after_a_day(store: Store) -> None:
    store.transactions.abort(store.open("aborted"), NOW_MS)
    store.open("over")
    day_ms = NOW_MS + CLOSED_KEPT_MS
    store.transactions.sweep("main", NOW_MS + TTL_MS)
    store.open("open", day_ms)
    store.transactions.sweep("main", day_ms - 1)
    assert store.states() == {"aborted": "aborted", "over": "expired", "open": "open"}
    store.transactions.sweep("main", day_ms)
    assert store.states() == {"over": "expired", "open": "open"}
    store.transactions.sweep("main", day_ms + TTL_MS - 1)
    store.transactions.extend(store.transactions.newest("main", "open"), day_ms * 2, day_ms)  # type: ignore[arg-type]
    store.transactions.sweep("main", day_ms + TTL_MS)
    assert (store.states(), store.staged()) == ({"open": "open"}, 1)


def test_one_sweep_deletes_a_bounded_number_of_rows(store: Store) -> None:
    """Also staged rows that earlier versions left behind."""
    left = store.open("open")
    rows = [
        {"name": str(number), "id": str(number), "state": "committed", "closed_ms": NOW_MS, "number": number}
        for number in range(DELETED_AT_A_TIME + 3)
    ]
    same = {"warehouse": "main", "base_number": 0, "opened_ms": NOW_MS - 1, "expires_ms": NOW_MS}

    def work(connection: sa.Connection) -> None:
        connection.execute(sa.insert(schema.transactions), [row | same | {"principal": "p"} for row in rows])
        connection.execute(sa.update(schema.staged).values(transaction_id=sa.literal("0")))

    store.database.write(work)
    store.transactions.extend(left, NOW_MS * 2, NOW_MS)
    for expected in (3, 0, 0):
        store.transactions.sweep("main", NOW_MS + CLOSED_KEPT_MS)
        assert len(store.states()) == expected + 1
        assert store.staged() == 0
