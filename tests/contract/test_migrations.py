"""The catalog's database through its versions: databases of older programs, with rows, become today's.

older_databases/ holds what the program of version 2 wrote, as SQL: two warehouses, tables, a view, a dropped
and a protected table, an open and a published transaction, an idempotency key, a report, a principal.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from catalog import faults
from catalog.names import Namespace, warehouse_ref
from catalog.services import namespaces, transactions
from catalog.services.catalog import Catalog, Limits
from catalog.services.writes import WriteContext
from catalog.storage.files import StorageFiles
from catalog.storage.s3 import S3Settings
from catalog.store import migrations, schema
from catalog.store.database import Database
from catalog.store.migrations import NEWEST, SchemaMismatch, migrate, require_current
from catalog.store.migrations.upgrade import FOLDER
from tests.harness.components import ROOT
from tests.harness.server import CalveServer
from tests.harness.stacks import STACKS, StackName, Stacks

OLDER = Path(__file__).parent / "older_databases"
SHAPE = {
    "sqlite": ("SELECT type, name, tbl_name, sql FROM sqlite_master",),
    "postgresql": (
        "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
        """SELECT table_name, column_name, data_type, collation_name, is_nullable, column_default
           FROM information_schema.columns WHERE table_schema = 'public'""",
    ),
}
Rows = dict[str, list[tuple[Any, ...]]]
Make = Callable[[int], Database]


@pytest.fixture(params=STACKS)
def at_version(request: pytest.FixtureRequest, stacks: Stacks, tmp_path: Path) -> Iterator[Make]:
    """A database of a version: 0 is an empty one, 1 and 2 have the rows of older_databases/."""
    opened: list[Database] = []

    def make(version: int) -> Database:
        url = _empty(request.param, stacks, tmp_path / f"{len(opened)}.db")
        if version:
            _load(url, version)
        opened.append(Database(url))
        return opened[-1]

    yield make
    for database in opened:
        database.close()


def _empty(stack: StackName, stacks: Stacks, path: Path) -> str:
    return f"sqlite:///{path}" if stack == "embedded" else stacks.postgres.database()


def _load(url: str, version: int) -> None:
    # Version 1 had two indexes less.
    first = (
        "DROP INDEX transactions_by_time; DROP INDEX dropped_to_purge; UPDATE schema_version SET version = 1;"
    )
    after = first if version == 1 else ""
    if url.startswith("sqlite:"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
            connection.executescript((OLDER / "version-2.sqlite.sql").read_text() + after)
        connection.close()
    else:
        with psycopg.connect(url.replace("+psycopg", "")) as postgres:
            script = (OLDER / "version-2.postgresql.sql").read_text() + after
            postgres.execute(script.encode())


def _rows(database: Database) -> Rows:
    """Every row of the catalog's tables that the database has, but the version."""
    with database.engine.connect() as connection:
        present = set(sa.inspect(connection).get_table_names())
        return {
            table.name: sorted(tuple(row) for row in connection.execute(sa.select(table)))
            for table in schema.metadata.sorted_tables
            if table is not schema.schema_version and table.name in present
        }


def _drift(database: Database) -> list[Any]:
    def ours(name: str | None, kind: str, _parents: object) -> bool:
        return kind != "table" or name in schema.metadata.tables

    with database.engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"include_name": ours, "compare_type": True, "compare_server_default": True}
        )
        return list(compare_metadata(context, schema.metadata))


def _shape(database: Database) -> set[tuple[Any, ...]]:
    """Columns and indexes as the database itself describes them."""
    queries = SHAPE["sqlite" if database.is_sqlite else "postgresql"]
    with database.engine.connect() as connection:
        found = [tuple(row) for query in queries for row in connection.execute(sa.text(query))]
    ours = [row for row in found if any(name in schema.metadata.tables for name in row)]
    return {tuple(" ".join(part.split()) if isinstance(part, str) else part for part in row) for row in ours}


@pytest.mark.parametrize("version", [1, 2])
def test_an_older_database_keeps_its_rows(at_version: Make, version: int) -> None:
    database = at_version(version)
    assert migrations.version(database) == version
    with pytest.raises(SchemaMismatch, match=f"at schema version {version}, this program needs {NEWEST}"):
        require_current(database)
    before = _rows(database)
    assert all(before.values()), "every table of the stored database has rows"
    assert migrate(database) == (version, NEWEST)
    require_current(database)
    after = _rows(database)
    assert {name: after.pop(name) for name in before} == before
    assert not any(after.values()), "tables of later versions are empty"
    assert _drift(database) == []
    fresh = at_version(0)
    migrate(fresh)
    assert _shape(database) == _shape(fresh)


def test_a_migrated_database_is_used(at_version: Make) -> None:
    """Reads and writes of what older programs left, without its files: the rows have the documents."""
    database = at_version(2)
    migrate(database)
    files = StorageFiles(S3Settings(), file_roots=[])
    catalog = Catalog(database, files, Limits(), files.client_properties)
    main = catalog.state(warehouse_ref("main"))
    assert main.names("shop", "table", "", 10) == ["customers", "orders"]
    assert main.names("shop", "view", "", 10) == ["recent"]
    orders = main.load("shop", "orders")
    assert orders is not None
    assert (orders.protected, len(orjson.loads(orders.document or b"")["snapshots"])) == (True, 2)
    assert [transaction.state for transaction in catalog.transactions.before("main", 2**62, "", 10)] == [
        "open",
        "committed",
    ]
    head = main.number()
    assert head is not None
    namespaces.create(catalog, main, WriteContext("tester"), Namespace(("new",)), {})
    assert main.number() == head + 1
    transactions.abort(catalog, "main", "open")


def test_an_empty_database_gets_todays_schema(at_version: Make) -> None:
    database, made_at_once = at_version(0), at_version(0)
    assert migrate(database) == (0, NEWEST)
    assert migrate(database) == (NEWEST, NEWEST)
    assert _drift(database) == []
    schema.metadata.create_all(made_at_once.engine)
    assert _shape(database) == _shape(made_at_once)


def test_a_change_of_the_tables_without_a_step_is_found(at_version: Make) -> None:
    """The control of the comparison: it does see a column and an index that are missing."""
    database = at_version(0)
    migrate(database)
    with database.engine.begin() as connection:
        connection.execute(sa.text("DROP INDEX tokens_by_expiry"))
        connection.execute(sa.text("ALTER TABLE grants ADD COLUMN note TEXT"))
    assert sorted(found[0] for found in _drift(database)) == ["add_index", "remove_column"]


def test_a_newer_database_is_refused(at_version: Make) -> None:
    database = at_version(0)
    migrate(database)
    with database.engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    for refuses in (migrate, require_current):
        with pytest.raises(SchemaMismatch, match="schema version 9999, newer than this program knows"):
            refuses(database)


def test_programs_from_before_alembic_see_a_newer_database(at_version: Make) -> None:
    database = at_version(2)
    migrate(database)
    with database.engine.connect() as connection:
        assert connection.execute(sa.select(sa.func.max(schema.schema_version.c.version))).scalar_one() > 2


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_migration_that_is_interrupted_leaves_the_old_version(
    at_version: Make, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = at_version(version)
    before = _shape(database)

    def interrupt(name: str) -> None:
        if name == "swap.before-commit":
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(faults, "reach", interrupt)
        with pytest.raises(KeyboardInterrupt):
            migrate(database)
    assert (migrations.version(database), _shape(database)) == (version, before)
    assert migrate(database) == (version, NEWEST)


@pytest.mark.parametrize("version", [0, 2])
def test_many_migrate_at_once(at_version: Make, version: int) -> None:
    database = at_version(version)
    url = database.url.render_as_string(hide_password=False)
    others = [Database(url) for _ in range(4)]
    with ThreadPoolExecutor(len(others)) as threads:
        outcomes = list(threads.map(migrate, others))
    for other in others:
        other.close()
    assert {after for _, after in outcomes} == {NEWEST}
    assert {before for before, _ in outcomes} <= {version, NEWEST}
    assert _drift(database) == []


def test_the_newest_version_is_that_of_the_steps() -> None:
    script = ScriptDirectory(str(FOLDER))
    assert script.get_current_head() == f"{NEWEST:04d}"
    assert [step.revision for step in script.walk_revisions()] == [
        f"{number:04d}" for number in range(NEWEST, 0, -1)
    ]


def test_a_current_database_is_opened_without_alembic(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/catalog.db"
    code = (
        "import sys; from catalog.store.database import Database;"
        "from catalog.store.migrations import migrate, require_current;"
        f"database = Database({url!r}); migrate(database); require_current(database);"
        "print('alembic' in sys.modules)"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.strip()
        for _ in range(2)
    ]
    assert outputs == ["True", "False"]


@pytest.mark.parametrize("stack", STACKS)
def test_calve_migrate_brings_an_older_database_up_to_date(
    stacks: Stacks, stack: StackName, tmp_path: Path
) -> None:
    url = _empty(stack, stacks, tmp_path / "catalog.db")
    _load(url, 2)
    server = CalveServer(tmp_path / "server", {"CALVE_DATABASE": url})
    first, second = (server.command("migrate") for _ in range(2))
    assert (first.returncode, first.stdout.strip()) == (0, f"schema version 2 -> {NEWEST}"), first.stderr
    assert (second.returncode, second.stdout.strip()) == (0, f"schema version {NEWEST}"), second.stderr
