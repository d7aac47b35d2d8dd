"""The tables of the catalog database.

Booleans are integers and JSON is text, so that SQLite and PostgreSQL store the same bytes and no driver
converts on a frequent read. A namespace is stored by its key (levels joined with 0x1F), which sorts like the
namespace. Names are compared byte by byte on both databases (COLLATE "C" on PostgreSQL), so that pages are
the same.
"""

from __future__ import annotations

import sqlalchemy as sa

metadata = sa.MetaData()

Text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
Serial = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

# Alembic stores the version in its own table. This table tells older programs that they are too old.
schema_version = sa.Table("schema_version", metadata, sa.Column("version", sa.Integer, primary_key=True))

warehouses = sa.Table(
    "warehouses",
    metadata,
    sa.Column("warehouse", Text, primary_key=True),
    sa.Column("root", Text, nullable=False, unique=True),
    sa.Column("created_ms", sa.BigInteger, nullable=False),
)

# The number of the newest commit, and the earliest time of the next one. This is not in `warehouses`, so that
# taking a number never waits for a lock on names.
heads = sa.Table(
    "heads",
    metadata,
    sa.Column("warehouse", Text, primary_key=True),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("time_ms", sa.BigInteger, nullable=False),
)

# The current entry of each name: a table, a view, or (with an empty name) the namespace itself.
entries = sa.Table(
    "entries",
    metadata,
    sa.Column("warehouse", Text, primary_key=True),
    sa.Column("namespace", Text, primary_key=True),
    sa.Column("name", Text, primary_key=True),
    sa.Column("kind", Text, nullable=False),
    sa.Column("uuid", Text, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("metadata_location", Text),
    sa.Column("document", sa.LargeBinary, nullable=False),
    sa.Column("protected", sa.Integer, nullable=False, server_default="0"),
    sa.Index("entries_by_uuid", "warehouse", "uuid"),
    # for lists, which read only the index
    sa.Index("entries_by_kind", "warehouse", "namespace", "kind", "name"),
)

# Every commit by number: history, events and past states.
history = sa.Table(
    "history",
    metadata,
    sa.Column("warehouse", Text, primary_key=True),
    sa.Column("number", sa.BigInteger, primary_key=True),
    sa.Column("ordinal", sa.Integer, primary_key=True),
    sa.Column("time_ms", sa.BigInteger, nullable=False),
    sa.Column("operation", Text, nullable=False),
    sa.Column("kind", Text, nullable=False),
    sa.Column("namespace", Text, nullable=False),
    sa.Column("name", Text, nullable=False),
    sa.Column("present", sa.Integer, nullable=False),
    sa.Column("uuid", Text, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("metadata_location", Text),
    sa.Column("principal", Text, nullable=False),
    sa.Column("detail", Text, nullable=False),
    sa.Index("history_by_name", "warehouse", "namespace", "name", "number"),
    sa.Index("history_by_time", "warehouse", "time_ms"),
)

# Reserved locations: a table keeps the locations that it has used while it has a name.
locations = sa.Table(
    "locations",
    metadata,
    sa.Column("warehouse", Text, primary_key=True),
    sa.Column("location", Text, primary_key=True),
    sa.Column("uuid", Text, nullable=False),
    sa.Index("locations_by_uuid", "warehouse", "uuid"),
)

# Rows in the purge queue (see dropped.py). The number is in the SQL text, because the databases do not use
# the partial index with a bound parameter.
queued_purges = sa.text("expires_ms <= 0")

dropped = sa.Table(
    "dropped",
    metadata,
    sa.Column("warehouse", Text, primary_key=True),
    sa.Column("id", Text, primary_key=True),
    sa.Column("kind", Text, nullable=False),
    sa.Column("namespace", Text, nullable=False),
    sa.Column("name", Text, nullable=False),
    sa.Column("uuid", Text, nullable=False),
    sa.Column("metadata_location", Text, nullable=False),
    sa.Column("document", sa.LargeBinary, nullable=False),
    sa.Column("dropped_ms", sa.BigInteger, nullable=False),
    sa.Column("expires_ms", sa.BigInteger, nullable=False),
    sa.Column("principal", Text, nullable=False),
    sa.Index("dropped_by_uuid", "warehouse", "uuid"),
    sa.Index("dropped_to_purge", "expires_ms", sqlite_where=queued_purges, postgresql_where=queued_purges),
)

transactions = sa.Table(
    "transactions",
    metadata,
    sa.Column("id", Text, primary_key=True),
    sa.Column("warehouse", Text, nullable=False),
    sa.Column("name", Text, nullable=False),
    sa.Column("base_number", sa.BigInteger, nullable=False),
    sa.Column("state", Text, nullable=False),
    sa.Column("opened_ms", sa.BigInteger, nullable=False),
    sa.Column("expires_ms", sa.BigInteger, nullable=False),
    sa.Column("closed_ms", sa.BigInteger),
    sa.Column("number", sa.BigInteger),
    sa.Column("principal", Text, nullable=False),
    sa.Index(
        "transactions_open",
        "warehouse",
        "name",
        unique=True,
        sqlite_where=sa.text("state = 'open'"),
        postgresql_where=sa.text("state = 'open'"),
    ),
    sa.Index("transactions_by_name", "warehouse", "name", "opened_ms"),
    sa.Index("transactions_by_time", "warehouse", "opened_ms", "id"),
)

# Staged changes: for each name that an open transaction has changed, the entry to publish and its base.
staged = sa.Table(
    "staged",
    metadata,
    sa.Column("transaction_id", Text, primary_key=True),
    sa.Column("namespace", Text, primary_key=True),
    sa.Column("name", Text, primary_key=True),
    sa.Column("kind", Text, nullable=False),
    sa.Column("operation", Text, nullable=False),
    sa.Column("present", sa.Integer, nullable=False),
    sa.Column("uuid", Text, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("metadata_location", Text),
    sa.Column("document", sa.LargeBinary, nullable=False),
    sa.Column("base_uuid", Text),
    sa.Column("base_version", sa.BigInteger),
    sa.Column("base_location", Text),
    sa.Column("requests", sa.LargeBinary, nullable=False),
    sa.Column("detail", Text, nullable=False),
)

idempotency = sa.Table(
    "idempotency",
    metadata,
    sa.Column("principal", Text, primary_key=True),
    sa.Column("operation", Text, primary_key=True),
    sa.Column("target", Text, primary_key=True),
    sa.Column("key", Text, primary_key=True),
    sa.Column("body_hash", Text, nullable=False),
    sa.Column("status", sa.Integer, nullable=False),
    sa.Column("answer", Text, nullable=False),
    sa.Column("expires_ms", sa.BigInteger, nullable=False),
    sa.Index("idempotency_by_expiry", "expires_ms"),
)

reports = sa.Table(
    "reports",
    metadata,
    sa.Column("id", Serial, primary_key=True, autoincrement=True),
    sa.Column("warehouse", Text, nullable=False),
    sa.Column("namespace", Text, nullable=False),
    sa.Column("name", Text, nullable=False),
    sa.Column("uuid", Text, nullable=False),
    sa.Column("received_ms", sa.BigInteger, nullable=False),
    sa.Column("principal", Text, nullable=False),
    sa.Column("report", Text, nullable=False),
    sa.Index("reports_by_table", "warehouse", "namespace", "name", "id"),
    sa.Index("reports_by_time", "received_ms"),
)

principals = sa.Table(
    "principals",
    metadata,
    sa.Column("principal", Text, primary_key=True),
    sa.Column("secret_hash", Text, nullable=False),
    sa.Column("created_ms", sa.BigInteger, nullable=False),
    sa.Column("disabled", sa.Integer, nullable=False, server_default="0"),
)

grants = sa.Table(
    "grants",
    metadata,
    sa.Column("principal", Text, primary_key=True),
    sa.Column("warehouse", Text, primary_key=True),  # "*" is every warehouse
    sa.Column("role", Text, nullable=False),
)

tokens = sa.Table(
    "tokens",
    metadata,
    sa.Column("token_hash", Text, primary_key=True),
    sa.Column("principal", Text, nullable=False),
    sa.Column("expires_ms", sa.BigInteger, nullable=False),
    sa.Index("tokens_by_expiry", "expires_ms"),
)

# Maintenance of a warehouse. Every number above `thinned_number` is a kept moment; at or below it, those in
# `moments` are. `lease_until_ms` is the lease of the server process that maintains the warehouse.
maintenance = sa.Table(
    "maintenance",
    metadata,
    sa.Column("warehouse", Text, primary_key=True),
    sa.Column("thinned_number", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("lease_holder", Text, nullable=False),
    sa.Column("lease_until_ms", sa.BigInteger, nullable=False, server_default="0"),
)

# Kept moments, and moments that readers have pinned until a time.
moments = sa.Table(
    "moments",
    metadata,
    sa.Column("warehouse", Text, primary_key=True),
    sa.Column("number", sa.BigInteger, primary_key=True),
    sa.Column("time_ms", sa.BigInteger, nullable=False),
    sa.Column("pinned_until_ms", sa.BigInteger, nullable=False, server_default="0"),
)

# Policies of a warehouse (empty namespace), a namespace (empty name) or a table.
maintenance_policies = sa.Table(
    "maintenance_policies",
    metadata,
    sa.Column("warehouse", Text, primary_key=True),
    sa.Column("namespace", Text, primary_key=True),
    sa.Column("name", Text, primary_key=True),
    sa.Column("policy", Text, nullable=False),
)

# What maintenance has done to a table: one row for each table, deleted with it.
maintenance_tables = sa.Table(
    "maintenance_tables",
    metadata,
    sa.Column("warehouse", Text, primary_key=True),
    sa.Column("uuid", Text, primary_key=True),
    sa.Column("files_after", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("requested", Text, nullable=False),
    sa.Column("retry_after_ms", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("done", Text, nullable=False, server_default="{}"),
)

# Files to delete: those that only expired snapshots refer to, found when the row is processed.
expired_files = sa.Table(
    "expired_files",
    metadata,
    sa.Column("id", Serial, primary_key=True, autoincrement=True),
    sa.Column("warehouse", Text, nullable=False),
    sa.Column("uuid", Text, nullable=False),
    sa.Column("due_ms", sa.BigInteger, nullable=False),
    sa.Column("files", sa.LargeBinary, nullable=False),
    sa.Index("expired_files_by_table", "warehouse", "uuid", "due_ms"),
)

# Queries of all server processes: those that have run for a while, and recent ones that ended.
queries = sa.Table(
    "queries",
    metadata,
    sa.Column("id", Text, primary_key=True),
    sa.Column("process", Text, nullable=False),
    sa.Column("caller", Text, nullable=False),
    sa.Column("warehouse", Text, nullable=False),
    sa.Column("document", Text, nullable=False),
    sa.Column("is_ended", sa.Integer, nullable=False),
    sa.Column("cancelled_by", Text, nullable=False),
    sa.Column("saved_ms", sa.BigInteger, nullable=False),
)

# Webhooks of the change feed. `token` is where each has read up to, in the commit after `number`; it was
# brought up to date at `read_ms`. `claim` is the server process that delivers it, until `claimed_until_ms`. A
# dead one is deleted some time after `died_ms`. `secret` is encrypted.
webhooks = sa.Table(
    "webhooks",
    metadata,
    sa.Column("id", Text, primary_key=True),
    sa.Column("warehouse", Text, nullable=False),
    sa.Column("url", Text, nullable=False),
    sa.Column("secret", Text, nullable=False),
    sa.Column("wanted", Text, nullable=False),
    sa.Column("principal", Text, nullable=False),
    sa.Column("created_ms", sa.BigInteger, nullable=False),
    sa.Column("state", Text, nullable=False),
    sa.Column("token", Text, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("next_attempt_ms", sa.BigInteger, nullable=False),
    sa.Column("last_error", Text),
    sa.Column("last_success_ms", sa.BigInteger),
    sa.Column("died_ms", sa.BigInteger),
    sa.Column("claim", Text, nullable=False),
    sa.Column("claimed_until_ms", sa.BigInteger, nullable=False),
    sa.Column("number", sa.BigInteger),
    sa.Column("read_ms", sa.BigInteger),
    sa.Index("webhooks_by_warehouse", "warehouse", "created_ms"),
)
