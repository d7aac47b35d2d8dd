"""The tables of the journal, and their version.

In SQLite they are a file of their own, so that an append never waits for the catalog's writer; in PostgreSQL
they stand beside the catalog's tables. Every append to a warehouse begins by locking the warehouse's row in
`journal_heads` and holds it to the end of COMMIT. So ids are in commit order and without gaps, and everything
else of the warehouse that an append touches is looked at by one writer at a time.
"""

from __future__ import annotations

import sqlite3

import sqlalchemy as sa

from catalog.store.database import Database, lift_time_limits
from catalog.store.migrations import SchemaMismatch
from catalog.store.schema import Text

VERSION = 3
LOCK = 4205339  # of PostgreSQL, for those who migrate at the same time

metadata = sa.MetaData()

journal_version = sa.Table("journal_version", metadata, sa.Column("version", sa.Integer, primary_key=True))

# The newest id of each warehouse, and how much of it has not been trimmed.
heads = sa.Table(
    "journal_heads",
    metadata,
    sa.Column("warehouse", Text, primary_key=True),
    sa.Column("id", sa.BigInteger, nullable=False),
    sa.Column("events", sa.BigInteger, nullable=False),
    sa.Column("bytes", sa.BigInteger, nullable=False),
)

# What one request brought for one table. All tables of a request share its id.
entries = sa.Table(
    "journal_entries",
    metadata,
    sa.Column("warehouse", Text, primary_key=True),
    sa.Column("table_key", Text, primary_key=True),
    sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("events", sa.Integer, nullable=False),
    sa.Column("stored_bytes", sa.Integer, nullable=False),
    sa.Column("received_ms", sa.BigInteger, nullable=False),
    sa.Column("skips", sa.LargeBinary),  # which of the blob's events were duplicates
    sa.Column("blob", sa.LargeBinary, nullable=False),
    # Answers what is pending without a look at the blobs.
    sa.Index(
        "journal_entries_pending", "warehouse", "table_key", "id", "events", "stored_bytes", "received_ms"
    ),
)

# The numbers seen of each source that counts its events; kept for ever, which is one row while it has no gap.
ranges = sa.Table(
    "journal_ranges",
    metadata,
    sa.Column("warehouse", Text, primary_key=True),
    sa.Column("source", Text, primary_key=True),
    sa.Column("first", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("last", sa.BigInteger, nullable=False),
)

# The identities that came with an append, as one blob of digests. A row for each identity would dirty a page
# for each of them; whoever appends knows them by heart and reads only the rows that others have added.
marks = sa.Table(
    "journal_marks",
    metadata,
    sa.Column("warehouse", Text, primary_key=True),
    sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("expires_ms", sa.BigInteger, nullable=False),
    sa.Column("marks", sa.LargeBinary, nullable=False),
    sa.Index("journal_marks_by_expiry", "expires_ms"),
)

# Source transactions that are spread over several requests, or may turn out to be.
transactions = sa.Table(
    "journal_transactions",
    metadata,
    sa.Column("warehouse", Text, primary_key=True),
    sa.Column("source", Text, primary_key=True),
    sa.Column("transaction", Text, primary_key=True),
    sa.Column("received", sa.BigInteger, nullable=False),
    sa.Column("expected", sa.BigInteger),
    sa.Column("ended", sa.Integer, nullable=False),
    sa.Column("followed", sa.Integer, nullable=False),
    sa.Column("is_open", sa.Integer, nullable=False),
    sa.Column("first_id", sa.BigInteger, nullable=False),  # 0: its end came before its first change
    sa.Column("last_id", sa.BigInteger, nullable=False),
    sa.Column("tables", Text, nullable=False),
    sa.Column("updated_ms", sa.BigInteger, nullable=False),
    sa.Column("announced", sa.Integer, nullable=False, server_default="0"),  # its beginning was
    sa.Index("journal_transactions_open", "warehouse", "is_open", "source"),
    sa.Index("journal_transactions_by_id", "warehouse", "last_id"),
)

# Tables that once shared a source transaction have the same group.
companions = sa.Table(
    "journal_companions",
    metadata,
    sa.Column("warehouse", Text, primary_key=True),
    sa.Column("table_key", Text, primary_key=True),
    sa.Column("group_key", Text, nullable=False),
)

dead_letters = sa.Table(
    "journal_dead_letters",
    metadata,
    sa.Column("id", Text, primary_key=True),
    sa.Column("warehouse", Text, nullable=False),
    sa.Column("table_key", Text, nullable=False),
    sa.Column("journal_id", sa.BigInteger, nullable=False),
    sa.Column("ordinal", sa.Integer, nullable=False),
    sa.Column("key", Text),
    sa.Column("code", Text, nullable=False),
    sa.Column("reason", Text, nullable=False),
    sa.Column("original", sa.LargeBinary, nullable=False),
    sa.Column("source", Text, nullable=False),
    sa.Column("position", Text, nullable=False),
    sa.Column("received_ms", sa.BigInteger, nullable=False),
    sa.Column("state", Text, nullable=False),
    sa.Column("replaced", sa.LargeBinary),
    sa.Column("changed_ms", sa.BigInteger, nullable=False),
    sa.Column("change", sa.LargeBinary),  # in the journal's own encoding, where the event could be read
    sa.Column("context", Text),  # JSON: how the request was read that brought the event
    sa.Column("job_id", Text),  # of the batch that staged it
    sa.Index("journal_dead_letters_by_place", "warehouse", "table_key", "journal_id", "ordinal", unique=True),
    sa.Index("journal_dead_letters_by_age", "warehouse", "journal_id", "ordinal", "id"),
    sa.Index("journal_dead_letters_by_state", "warehouse", "state", "table_key"),
)


# What leads from each version to the next.
_UPGRADES = {
    1: (
        "ALTER TABLE journal_transactions ADD COLUMN announced INTEGER NOT NULL DEFAULT 0",
        "DROP INDEX journal_transactions_open",
        "CREATE INDEX journal_transactions_open ON journal_transactions (warehouse, is_open, source)",
    ),
    2: (
        "ALTER TABLE journal_dead_letters ADD COLUMN change {binary}",
        "ALTER TABLE journal_dead_letters ADD COLUMN context TEXT",
        "ALTER TABLE journal_dead_letters ADD COLUMN job_id TEXT",
    ),
}


def migrate(database: Database) -> tuple[int, int]:
    """Bring the journal to this program's version. Answers (before, after). Safe to run by many at once."""
    tune(database)

    def work(connection: sa.Connection) -> tuple[int, int]:
        if connection.dialect.name == "postgresql":
            lift_time_limits(connection)
            connection.execute(sa.text(f"SELECT pg_advisory_xact_lock({LOCK})"))
        before = _version(connection)
        _refuse_newer(before)
        if before == 0:
            metadata.create_all(connection)
            _store_compressed_as_it_is(connection)
            connection.execute(sa.insert(journal_version).values(version=VERSION))
        for step in range(before or VERSION, VERSION):
            for statement in _UPGRADES[step]:
                binary = "BYTEA" if connection.dialect.name == "postgresql" else "BLOB"
                connection.execute(sa.text(statement.format(binary=binary)))
            connection.execute(sa.update(journal_version).values(version=step + 1))
        return before, VERSION

    return database.write(work)


def version(database: Database) -> int:
    """The version the journal is at; 0 where there is none."""
    with database.engine.connect() as connection:
        return _version(connection)


def require_current(database: Database) -> None:
    """Raise SchemaMismatch unless the journal is exactly of this program's version."""
    found = version(database)
    _refuse_newer(found)
    if found < VERSION:
        raise SchemaMismatch(
            f"the journal is at schema version {found}, this program needs {VERSION}: run `calve migrate`"
        )


def tune(database: Database) -> None:
    """SQLite on Debian overwrites what is deleted with zeros; here that would write every blob once more."""
    if database.is_sqlite and not sa.event.contains(database.engine, "connect", _keep_deleted):
        sa.event.listen(database.engine, "connect", _keep_deleted)


def _keep_deleted(connection: sqlite3.Connection, _record: object) -> None:
    connection.execute("PRAGMA secure_delete=OFF")


def _store_compressed_as_it_is(connection: sa.Connection) -> None:
    """PostgreSQL would try to compress the blobs once more."""
    if connection.dialect.name == "postgresql":
        for table, column in ((entries, "blob"), (marks, "marks")):
            connection.execute(sa.text(f"ALTER TABLE {table.name} ALTER {column} SET STORAGE EXTERNAL"))


def _refuse_newer(found: int) -> None:
    if found > VERSION:
        raise SchemaMismatch(
            f"the journal is at schema version {found}, newer than this program knows ({VERSION}): "
            "upgrade the program"
        )


def _version(connection: sa.Connection) -> int:
    if not sa.inspect(connection).has_table(journal_version.name):
        return 0
    return connection.execute(sa.select(sa.func.max(journal_version.c.version))).scalar() or 0
