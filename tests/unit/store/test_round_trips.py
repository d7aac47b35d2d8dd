"""How many statements a write sends: on PostgreSQL each is a round trip, and locks are held meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from catalog.names import Identifier
from catalog.services import commits, tables
from catalog.services.catalog import Catalog
from catalog.services.commits import TableCommit
from tests.concurrency.ground import ASKED, NAMESPACE, Ground, create_tables, state, table
from tests.harness.rest import SCHEMA
from tests.harness.stacks import Stacks

BEGIN = "BEGIN IMMEDIATE"


@pytest.fixture
def catalog(stacks: Stacks, tmp_path: Path) -> Iterator[Catalog]:
    with Ground.fresh(stacks, "embedded", tmp_path).opened() as opened:
        create_tables(opened, "a", "b")
        yield opened


def _sent(catalog: Catalog, work: Callable[[], object]) -> list[str]:
    """The statements that `work` sends."""
    sent: list[str] = []

    def add(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        sent.append(statement)

    sa.event.listen(catalog.database.engine, "before_cursor_execute", add)
    work()
    sa.event.remove(catalog.database.engine, "before_cursor_execute", add)
    return sent


def _statements(catalog: Catalog, work: Callable[[], object]) -> list[str]:
    """The first words of the statements that `work` sends inside its transaction."""
    sent = _sent(catalog, work)
    inside = sent[sent.index(BEGIN) + 1 :]
    return [" ".join(statement.split()[:2]) for statement in inside]


def _commit(name: str) -> TableCommit:
    return TableCommit(table(name), [], [{"action": "set-properties", "updates": {"p": "1"}}])


def test_a_commit_sends_three_statements(catalog: Catalog) -> None:
    sent = _statements(catalog, lambda: commits.commit_tables(catalog, state(catalog), ASKED, [_commit("a")]))
    assert sent == ["UPDATE entries", "UPDATE heads", "INSERT INTO"]


def test_the_history_of_a_transaction_is_written_at_once(catalog: Catalog) -> None:
    both = [_commit("a"), _commit("b")]
    sent = _statements(catalog, lambda: commits.commit_tables(catalog, state(catalog), ASKED, both))
    assert sent == ["UPDATE entries", "UPDATE entries", "UPDATE heads", "INSERT INTO"]


def test_a_create_sends_nine_statements(catalog: Catalog) -> None:
    made = Identifier(NAMESPACE, "c")
    sent = _statements(
        catalog, lambda: tables.create(catalog, state(catalog), ASKED, made, {"name": "c", "schema": SCHEMA})
    )
    assert sent.count("INSERT INTO") == 3  # the entry, its location, the history
    assert len(sent) == 9


def test_a_commit_reads_each_table_once_and_its_warehouse_with_it(catalog: Catalog) -> None:
    both = [_commit("a"), _commit("b")]
    sent = _sent(catalog, lambda: commits.commit_tables(catalog, state(catalog), ASKED, both))
    assert [statement.partition("FROM")[2].split()[0] for statement in sent[: sent.index(BEGIN)]] == [
        "warehouses",
        "warehouses",
    ]
