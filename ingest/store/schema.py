"""The SQL tables of landing, beside those of the catalog and with their own version."""

from __future__ import annotations

import sqlalchemy as sa

from catalog.store.database import Database, lift_time_limits
from catalog.store.migrations import SchemaMismatch
from catalog.store.schema import Text

metadata = sa.MetaData()
VERSION = 7

landing_version = sa.Table("landing_version", metadata, sa.Column("version", sa.Integer, primary_key=True))

# A table in which changes land. `landed_id` is the journal id up to which they are visible.
landing_tables = sa.Table(
    "landing_tables",
    metadata,
    sa.Column("warehouse", Text, primary_key=True),
    sa.Column("table_key", Text, primary_key=True),
    sa.Column("settings", Text, nullable=False, server_default="{}"),
    sa.Column("landed_id", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("number", sa.BigInteger),  # of the publish that brought it there
    sa.Column("commit_us", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("mirror_snapshot_id", sa.BigInteger),
    sa.Column("changes_snapshot_id", sa.BigInteger),
    sa.Column("load_key", Text),  # the first load that is still running: source and position
    sa.Column("events", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("rejects", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("notice", Text),  # a message for its owner, such as a missing key
)

# The newest position of each source that is visible in a table.
landing_watermarks = sa.Table(
    "landing_watermarks",
    metadata,
    sa.Column("warehouse", Text, primary_key=True),
    sa.Column("table_key", Text, primary_key=True),
    sa.Column("source", Text, primary_key=True),
    sa.Column("position", Text, nullable=False),
    sa.Column("time_ms", sa.BigInteger),
    sa.Column("updated_ms", sa.BigInteger, nullable=False),
)

# The results of verification of a mirror.
landing_verifications = sa.Table(
    "landing_verifications",
    metadata,
    sa.Column("warehouse", Text, primary_key=True),
    sa.Column("table_key", Text, primary_key=True),
    sa.Column("requested_ms", sa.BigInteger),  # a verification was requested
    sa.Column("job_id", Text),  # of the newest attempt
    sa.Column("started_ms", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("checked_ms", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("number", sa.BigInteger, nullable=False, server_default="0"),  # of the warehouse, at the check
    sa.Column("found", Text, nullable=False, server_default="{}"),
    sa.Column("verified", Text),  # the newest check without a difference: number and positions
    sa.Column("reference", Text),  # checksums of the source that a producer has posted
)

# The checksums of a mirror at a snapshot, which each batch brings up to date.
landing_checksums = sa.Table(
    "landing_checksums",
    metadata,
    sa.Column("warehouse", Text, primary_key=True),
    sa.Column("table_key", Text, primary_key=True),
    sa.Column("number", sa.BigInteger),  # of the newest publish that they cover
    sa.Column("snapshot_id", sa.BigInteger),
    sa.Column("hashed", Text, nullable=False, server_default=""),  # identifies the columns and the key
    sa.Column("buckets", sa.LargeBinary, nullable=False, default=b"", server_default=""),
    sa.Column("reason", Text),  # why they are unknown
    sa.Column("changed_ms", sa.BigInteger, nullable=False, server_default="0"),
)

# The mirror of a table: whether its changes table has every change, its key, and its rebuilds.
landing_mirrors = sa.Table(
    "landing_mirrors",
    metadata,
    sa.Column("warehouse", Text, primary_key=True),
    sa.Column("table_key", Text, primary_key=True),
    sa.Column("changes_rows", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("gap", Text),  # why the changes table does not have every change of the mirror
    sa.Column("key_history", Text, nullable=False, server_default="[]"),  # JSON; the newest last
    sa.Column("key_reason", Text),
    sa.Column("evidence", Text),  # JSON; about a guessed key
    sa.Column("doubt", Text),  # why the mirror may be wrong
    sa.Column("rebuild", Text),  # why a rebuild is due; nothing lands until it is done
    sa.Column("is_needed", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("requested_ms", sa.BigInteger),
    sa.Column("rebuild_error", Text),  # why it cannot be done
    sa.Column("rebuilt_ms", sa.BigInteger),
    sa.Column("rebuilt_number", sa.BigInteger),
    sa.Column("rebuilt_why", Text),
)

# The rules of a source: which of its tables and columns are stored.
landing_sources = sa.Table(
    "landing_sources",
    metadata,
    sa.Column("warehouse", Text, primary_key=True),
    sa.Column("source", Text, primary_key=True),
    sa.Column("rules", Text, nullable=False),
    sa.Column("salt", sa.LargeBinary, nullable=False),  # for hashed columns; not part of any response
    sa.Column("changed_ms", sa.BigInteger, nullable=False),
)

# Paused sources and tables: their changes are acknowledged and do not land.
landing_pauses = sa.Table(
    "landing_pauses",
    metadata,
    sa.Column("warehouse", Text, primary_key=True),
    sa.Column("kind", Text, primary_key=True),  # source, table
    sa.Column("name", Text, primary_key=True),
    sa.Column("reason", Text, nullable=False),
    sa.Column("since_ms", sa.BigInteger, nullable=False),
)

# The last resync of each table: the changes between two journal ids replace the rows of its mirror.
landing_resyncs = sa.Table(
    "landing_resyncs",
    metadata,
    sa.Column("warehouse", Text, primary_key=True),
    sa.Column("table_key", Text, primary_key=True),
    sa.Column("generation", sa.BigInteger, nullable=False),
    sa.Column("state", Text, nullable=False),  # open, ending, published, aborted, expired
    sa.Column("begin_id", sa.BigInteger, nullable=False),
    sa.Column("end_id", sa.BigInteger),
    sa.Column("began_ms", sa.BigInteger, nullable=False),
    sa.Column("changed_ms", sa.BigInteger, nullable=False),
    sa.Column("reason", Text),  # why it was aborted or expired
    sa.Column("number", sa.BigInteger),  # of its publish
)

jobs = sa.Table(
    "landing_jobs",
    metadata,
    sa.Column("id", Text, primary_key=True),
    sa.Column("warehouse", Text, nullable=False),
    sa.Column("state", Text, nullable=False),  # staging, ready, leased, done
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("worker", Text, nullable=False),
    sa.Column("lease_ends_ms", sa.BigInteger, nullable=False),
    sa.Column("not_before_ms", sa.BigInteger, nullable=False),
    sa.Column("created_ms", sa.BigInteger, nullable=False),
    sa.Column("finished_ms", sa.BigInteger),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("description", sa.LargeBinary, nullable=False),
    sa.Column("landing", sa.LargeBinary, nullable=False),  # what the publish sets
    sa.Column("progress", Text, nullable=False, server_default="{}"),
    sa.Column("error", Text),
    sa.Column("number", sa.BigInteger),
    sa.Index("landing_jobs_by_state", "state", "warehouse"),
    sa.Index("landing_jobs_by_end", "finished_ms"),
)

# A table is in at most one unfinished job: this primary key enforces the lane.
claims = sa.Table(
    "landing_claims",
    metadata,
    sa.Column("warehouse", Text, primary_key=True),
    sa.Column("table_key", Text, primary_key=True),
    sa.Column("job_id", Text, nullable=False),
    sa.Index("landing_claims_by_job", "job_id"),
)

# The journal from which changes of a warehouse landed, and its newest id at the last publish.
landing_journals = sa.Table(
    "landing_journals",
    metadata,
    sa.Column("warehouse", Text, primary_key=True),
    sa.Column("journal_id", Text, nullable=False),
    sa.Column("head", sa.BigInteger, nullable=False),
)

workers = sa.Table(
    "landing_workers",
    metadata,
    sa.Column("worker", Text, primary_key=True),
    sa.Column("seen_ms", sa.BigInteger, nullable=False),
    sa.Column("said", Text, nullable=False, server_default="{}"),
)


# Tables whose rows are deleted with their warehouse.
OF_A_WAREHOUSE = (
    landing_tables,
    landing_mirrors,
    landing_watermarks,
    landing_verifications,
    landing_checksums,
    landing_journals,
    landing_resyncs,
    claims,
)


def migrate(database: Database) -> None:
    """Migrate the landing tables to this program's version. Safe to run concurrently."""

    def work(connection: sa.Connection) -> None:
        if connection.dialect.name == "postgresql":
            lift_time_limits(connection)
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(4205338)"))
        before = _version(connection)
        metadata.create_all(connection)  # later versions have more tables
        if before == 0:
            connection.execute(sa.insert(landing_version).values(version=VERSION))
        elif before < VERSION:
            connection.execute(sa.update(landing_version).values(version=VERSION))

    require_known(database)
    database.write(work)


def require_known(database: Database) -> int:
    """Return the version; SchemaMismatch if a newer program wrote it."""
    with database.engine.connect() as connection:
        found = _version(connection)
    if found > VERSION:
        raise SchemaMismatch(
            f"the landing tables are at version {found}, newer than this program knows ({VERSION}): "
            "upgrade the program"
        )
    return found


def require_current(database: Database) -> None:
    if require_known(database) < VERSION:
        raise SchemaMismatch("the landing tables are missing or of an older version: run `calve migrate`")


def _version(connection: sa.Connection) -> int:
    if not sa.inspect(connection).has_table(landing_version.name):
        return 0
    return connection.execute(sa.select(sa.func.max(landing_version.c.version))).scalar() or 0
