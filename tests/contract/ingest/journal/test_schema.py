"""The journal's own version, beside the catalog's."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from catalog.store import migrations
from catalog.store.database import Database
from catalog.store.migrations import SchemaMismatch
from ingest.journal import schema, table_groups
from tests.harness.postgres import PostgresServer


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/journal.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.database()


def test_migrate_brings_it_up_once(url: str) -> None:
    database = Database(url)
    with pytest.raises(SchemaMismatch, match="calve migrate"):
        schema.require_current(database)
    assert schema.migrate(database) == (0, schema.VERSION)
    assert schema.migrate(database) == (schema.VERSION, schema.VERSION)
    schema.require_current(database)
    migrations.migrate(database)  # the catalog's tables are others
    migrations.require_current(database)
    schema.require_current(database)
    database.close()


def test_many_may_migrate_at_once(url: str) -> None:
    databases = [Database(url) for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(schema.migrate, databases))
    now = schema.VERSION
    assert sorted(found) == [(0, now), (now, now), (now, now), (now, now)]
    for database in databases:
        database.close()


def test_an_older_one_is_brought_up(url: str) -> None:
    """To a schema that a new one has, too."""
    database, fresh = Database(url), Database("sqlite://")
    schema.migrate(database)
    schema.migrate(fresh)

    def age(connection: sa.Connection) -> None:
        for statement in (
            "DROP INDEX journal_transactions_open",
            "ALTER TABLE journal_transactions DROP COLUMN announced",
            "CREATE INDEX journal_transactions_open ON journal_transactions (warehouse, source, is_open)",
            "DROP TABLE journal_sources",
            "DROP TABLE journal_identity",
            "ALTER TABLE journal_heads DROP COLUMN trimmed_id",
            "ALTER TABLE journal_entries DROP COLUMN epochs",
            "ALTER TABLE journal_dead_letters DROP COLUMN change",
            "ALTER TABLE journal_dead_letters DROP COLUMN context",
            "ALTER TABLE journal_dead_letters DROP COLUMN job_id",
            "DROP TABLE journal_shared",
            (
                "CREATE TABLE journal_companions (warehouse TEXT NOT NULL, table_key TEXT NOT NULL,"
                " group_key TEXT NOT NULL, PRIMARY KEY (warehouse, table_key))"
            ),
            "INSERT INTO journal_companions VALUES ('main', 'a', 'a'), ('main', 'b', 'a')",
            "INSERT INTO journal_heads (warehouse, id, events, bytes) VALUES ('main', 7, 0, 0)",
            "DROP INDEX journal_entries_pending",
            "ALTER TABLE journal_entries DROP COLUMN sources",
            (
                "CREATE INDEX journal_entries_pending ON journal_entries"
                " (warehouse, table_key, id, events, stored_bytes, received_ms)"
            ),
            "UPDATE journal_version SET version = 1",
        ):
            connection.execute(sa.text(statement))

    database.write(age)
    assert schema.migrate(database) == (1, schema.VERSION)
    schema.require_current(database)
    assert table_groups.groups(database, "main") == [
        table_groups.SharedSpan(frozenset({("a",), ("b",)}), 1, 7)
    ], "what waits is landed together once more"
    for table in schema.metadata.tables:
        looks = [sa.inspect(one.engine) for one in (database, fresh)]
        columns = [{column["name"] for column in look.get_columns(table)} for look in looks]
        assert columns[0] == columns[1]
        indexes = [{i["name"]: i["column_names"] for i in look.get_indexes(table)} for look in looks]
        assert indexes[0] == indexes[1]
    database.close()
    fresh.close()


def test_a_newer_one_is_refused(url: str) -> None:
    database = Database(url)
    schema.migrate(database)
    database.write(
        lambda connection: connection.execute(sa.update(schema.journal_version).values(version=99))
    )
    for look in (schema.require_current, schema.migrate):
        with pytest.raises(SchemaMismatch, match="newer"):
            look(database)
    database.close()
