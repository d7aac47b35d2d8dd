"""How many statements a write sends: on PostgreSQL each is a round trip, and locks are held meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest
import sqlalchemy as sa

from catalog.errors import Invalid
from catalog.names import Identifier, Namespace
from catalog.services import commits, namespaces, tables
from catalog.services.catalog import Catalog
from catalog.services.commits import TableCommit
from tests.concurrency.catalog_address import CONTEXT, NAMESPACE, CatalogAddress, create_tables, state, table
from tests.harness.rest import SCHEMA
from tests.harness.stacks import Stacks

BEGIN = "BEGIN IMMEDIATE"


@pytest.fixture
def catalog(stacks: Stacks, tmp_path: Path) -> Iterator[Catalog]:
    with CatalogAddress.fresh(stacks, "embedded", tmp_path).opened() as opened:
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
    sent = _statements(
        catalog, lambda: commits.commit_tables(catalog, state(catalog), CONTEXT, [_commit("a")])
    )
    assert sent == ["UPDATE entries", "UPDATE heads", "INSERT INTO"]


def test_the_history_of_a_transaction_is_written_at_once(catalog: Catalog) -> None:
    both = [_commit("a"), _commit("b")]
    sent = _statements(catalog, lambda: commits.commit_tables(catalog, state(catalog), CONTEXT, both))
    assert sent == ["UPDATE entries", "UPDATE entries", "UPDATE heads", "INSERT INTO"]


def test_a_create_sends_nine_statements(catalog: Catalog) -> None:
    made = Identifier(NAMESPACE, "c")
    sent = _statements(
        catalog,
        lambda: tables.create(catalog, state(catalog), CONTEXT, made, {"name": "c", "schema": SCHEMA}),
    )
    assert sent.count("INSERT INTO") == 3  # the entry, its location, the history
    assert len(sent) == 9


def test_a_commit_reads_each_table_once_and_its_warehouse_with_it(catalog: Catalog) -> None:
    both = [_commit("a"), _commit("b")]
    sent = _sent(catalog, lambda: commits.commit_tables(catalog, state(catalog), CONTEXT, both))
    assert [statement.partition("FROM")[2].split()[0] for statement in sent[: sent.index(BEGIN)]] == [
        "warehouses",
        "warehouses",
    ]


def test_a_create_reads_its_namespace_and_its_name(catalog: Catalog) -> None:
    made = Identifier(NAMESPACE, "c")
    sent = _sent(
        catalog,
        lambda: tables.create(catalog, state(catalog), CONTEXT, made, {"name": "c", "schema": SCHEMA}),
    )
    assert sent.index(BEGIN) == 2


def test_a_location_of_the_server_inside_another_table_is_refused_and_leaves_no_file(
    catalog: Catalog, tmp_path: Path
) -> None:
    """The namespace lies inside a table, so the location that the server chooses does too."""
    entry = tables.load(state(catalog), table("a"))
    place = orjson.loads(entry.document or b"")["location"]
    namespaces.create(
        catalog, state(catalog), CONTEXT, Namespace(("inside",)), {"location": f"{place}/inside"}
    )
    made = Identifier(Namespace(("inside",)), "c")
    files = sorted(tmp_path.rglob("*.json"))
    with pytest.raises(Invalid, match="overlaps"):
        tables.create(catalog, state(catalog), CONTEXT, made, {"name": "c", "schema": SCHEMA})
    assert sorted(tmp_path.rglob("*.json")) == files
    assert state(catalog).entry("inside", "c") is None
