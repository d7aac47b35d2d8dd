"""The SQL tables of the journal and their version, and which database errors are caused by the data."""

from __future__ import annotations

import sqlite3
import uuid

import orjson
import sqlalchemy as sa

from catalog.errors import CatalogError, CommitStateUnknown
from catalog.store.database import Database, lift_time_limits
from catalog.store.migrations import SchemaMismatch
from catalog.store.schema import Text

VERSION = 5
LOCK = 4205339  # advisory lock of PostgreSQL, for concurrent migrations

metadata = sa.MetaData()

journal_version = sa.Table("journal_version", metadata, sa.Column("version", sa.Integer, primary_key=True))

# The newest id of each warehouse, and how much of it has not been trimmed.
counters = sa.Table(
    "journal_heads",
    metadata,
    sa.Column("warehouse", Text, primary_key=True),
    sa.Column("id", sa.BigInteger, nullable=False),
    sa.Column("events", sa.BigInteger, nullable=False),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    # the newest id that has landed
    sa.Column("trimmed_id", sa.BigInteger, nullable=False, server_default="0"),
)

# Each journal has its own id, by which the catalog recognises the journal from which it has landed.
identity = sa.Table("journal_identity", metadata, sa.Column("id", Text, primary_key=True))

# The state of each source, as JSON (`SourceState`): its epoch, its newest position, why it is held.
sources = sa.Table(
    "journal_sources",
    metadata,
    sa.Column("warehouse", Text, primary_key=True),
    sa.Column("source", Text, primary_key=True),
    sa.Column("state", Text, nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("updated_ms", sa.BigInteger, nullable=False),
    sa.Index("journal_sources_by_age", "updated_ms"),
)

# The events of one request for one table. All tables of a request share its id.
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
    sa.Column("sources", Text),  # their names, each between two 0x1F
    sa.Column("epochs", Text),  # JSON: [source, origin, epoch] of changes that are not in the first epoch
    # Tells what is pending without reading the blobs.
    sa.Index(
        "journal_entries_pending",
        "warehouse",
        "table_key",
        "id",
        "events",
        "stored_bytes",
        "received_ms",
        "sources",
    ),
)

# The numbers seen of each source that numbers its events; kept without a limit: one row while there is no
# gap.
ranges = sa.Table(
    "journal_ranges",
    metadata,
    sa.Column("warehouse", Text, primary_key=True),
    sa.Column("source", Text, primary_key=True),
    sa.Column("first", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("last", sa.BigInteger, nullable=False),
)

# The identities that came with an append, as one blob of digests. A row for each identity would dirty a page
# for each of them; a process keeps them in memory and reads only the rows that other processes have added.
digests = sa.Table(
    "journal_marks",
    metadata,
    sa.Column("warehouse", Text, primary_key=True),
    sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("expires_ms", sa.BigInteger, nullable=False),
    sa.Column("marks", sa.LargeBinary, nullable=False),
    sa.Index("journal_marks_by_expiry", "expires_ms"),
)

# Source transactions that extend over several requests, or may.
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
    sa.Column("first_id", sa.BigInteger, nullable=False),  # 0: its end arrived before its first change
    sa.Column("last_id", sa.BigInteger, nullable=False),
    sa.Column("tables", Text, nullable=False),
    sa.Column("updated_ms", sa.BigInteger, nullable=False),
    sa.Column("announced", sa.Integer, nullable=False, server_default="0"),  # its beginning was announced
    sa.Index("journal_transactions_open", "warehouse", "is_open", "source"),
    sa.Index("journal_transactions_by_id", "warehouse", "last_id"),
)

# Source transactions of one append that touch the same tables, from the first id to the last.
shared = sa.Table(
    "journal_shared",
    metadata,
    sa.Column("warehouse", Text, primary_key=True),
    sa.Column("last_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("ordinal", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("first_id", sa.BigInteger, nullable=False),
    sa.Column("tables", Text, nullable=False),
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
    sa.Column("change", sa.LargeBinary),  # in the journal's encoding, if the event could be parsed
    sa.Column("context", Text),  # JSON: how the request was parsed
    sa.Column("job_id", Text),  # of the batch that staged it
    sa.Index("journal_dead_letters_by_place", "warehouse", "table_key", "journal_id", "ordinal", unique=True),
    sa.Index("journal_dead_letters_by_age", "warehouse", "journal_id", "ordinal", "id"),
    sa.Index("journal_dead_letters_by_state", "warehouse", "state", "table_key"),
)

_KEEP_GROUPS = "keep groups"

# The statements that lead from each version to the next.
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
    # The groups of version 3 had no end. Tables of a group with pending changes are joined once more.
    3: (
        (
            "CREATE TABLE journal_shared (warehouse TEXT NOT NULL, last_id BIGINT NOT NULL,"
            " ordinal INTEGER NOT NULL, first_id BIGINT NOT NULL, tables TEXT NOT NULL,"
            " PRIMARY KEY (warehouse, last_id, ordinal))"
        ),
        _KEEP_GROUPS,
        "DROP TABLE journal_companions",
        "ALTER TABLE journal_entries ADD COLUMN sources TEXT",
        "DROP INDEX journal_entries_pending",
        (
            "CREATE INDEX journal_entries_pending ON journal_entries"
            " (warehouse, table_key, id, events, stored_bytes, received_ms, sources)"
        ),
    ),
    4: (
        "ALTER TABLE journal_heads ADD COLUMN trimmed_id BIGINT NOT NULL DEFAULT 0",
        "ALTER TABLE journal_entries ADD COLUMN epochs TEXT",
    ),
}


def migrate(database: Database) -> tuple[int, int]:
    """Migrate the journal to this program's version. Returns (before, after). Safe to run concurrently."""
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
                if statement == _KEEP_GROUPS:
                    _keep_groups(connection)
                    continue
                binary = "BYTEA" if connection.dialect.name == "postgresql" else "BLOB"
                connection.execute(sa.text(statement.format(binary=binary)))
            connection.execute(sa.update(journal_version).values(version=step + 1))
        metadata.create_all(connection)
        if connection.execute(sa.select(identity.c.id)).first() is None:
            connection.execute(sa.insert(identity).values(id=uuid.uuid4().hex))
        return before, VERSION

    return database.write(work)


def _keep_groups(connection: sa.Connection) -> None:
    groups: dict[tuple[str, str, int], list[str]] = {}
    rows = connection.execute(
        sa.text(
            "SELECT c.warehouse, c.group_key, c.table_key, h.id FROM journal_companions c"
            " JOIN journal_heads h ON h.warehouse = c.warehouse ORDER BY c.group_key, c.table_key"
        )
    )
    for warehouse, group, table, head in rows:
        groups.setdefault((warehouse, group, head), []).append(table)
    for ordinal, ((warehouse, _, head), tables) in enumerate(groups.items()):
        if len(tables) == 1:
            continue
        values = {"warehouse": warehouse, "last_id": head, "ordinal": ordinal, "first_id": 1}
        connection.execute(sa.insert(shared).values(**values, tables=orjson.dumps(tables).decode()))


def version(database: Database) -> int:
    """Return the version of the journal; 0 if there is none."""
    with database.engine.connect() as connection:
        return _version(connection)


def require_current(database: Database) -> None:
    """Raise SchemaMismatch unless the journal has exactly this program's version."""
    found = version(database)
    _refuse_newer(found)
    if found < VERSION:
        raise SchemaMismatch(
            f"the journal is at schema version {found}, this program needs {VERSION}: run `calve migrate`"
        )


def tune(database: Database) -> None:
    """Turn off `secure_delete`: SQLite on Debian overwrites deleted data with zeros, which would write every
    blob once more.
    """
    if database.is_sqlite and not sa.event.contains(database.engine, "connect", _keep_deleted):
        sa.event.listen(database.engine, "connect", _keep_deleted)


def _keep_deleted(connection: sqlite3.Connection, _record: object) -> None:
    connection.execute("PRAGMA secure_delete=OFF")


def _store_compressed_as_it_is(connection: sa.Connection) -> None:
    """Store the blobs uncompressed: PostgreSQL would try to compress them again."""
    if connection.dialect.name == "postgresql":
        for table, column in ((entries, "blob"), (digests, "marks")):
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


# PostgreSQL: a value that a column cannot hold, a constraint, a row or a name that is too large. Every other
# state concerns the server (a failover, a full disk, a shutdown): the request may be sent again.
_BAD_DATA = ("22", "23", "54")

# Errors with which a Python driver refuses values before it sends them.
_REFUSALS = frozenset({"DataError", "IntegrityError", "NotSupportedError", "ProgrammingError"})


def root_cause(error: BaseException) -> BaseException:
    return error.__cause__ if isinstance(error, CatalogError) and error.__cause__ is not None else error


def is_about_data(error: Exception) -> bool:
    """Return whether the transaction certainly did nothing, and would fail again."""
    if isinstance(error, CommitStateUnknown):
        return False
    cause = root_cause(error)
    cause = getattr(cause, "orig", None) or cause  # SQLAlchemy wraps the driver's error
    state = getattr(cause, "sqlstate", None)
    if state is not None:
        return bool(state.startswith(_BAD_DATA))
    if isinstance(cause, (TypeError, ValueError, OverflowError)):
        return True
    return any(kind.__name__ in _REFUSALS for kind in type(cause).__mro__)
