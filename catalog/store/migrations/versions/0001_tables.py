"""The tables of version 1. They are copied here, so that this step does not change with schema.py."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

Text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
Serial = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
OPEN: dict[str, Any] = {
    "sqlite_where": sa.text("state = 'open'"),
    "postgresql_where": sa.text("state = 'open'"),
}


def upgrade() -> None:
    _create_tables()
    _create_indexes()


def _create_tables() -> None:
    op.create_table(
        "schema_version",
        sa.Column("version", sa.Integer, primary_key=True),
    )
    op.create_table(
        "warehouses",
        sa.Column("warehouse", Text, primary_key=True),
        sa.Column("root", Text, nullable=False, unique=True),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "heads",
        sa.Column("warehouse", Text, primary_key=True),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("time_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "entries",
        sa.Column("warehouse", Text, primary_key=True),
        sa.Column("namespace", Text, primary_key=True),
        sa.Column("name", Text, primary_key=True),
        sa.Column("kind", Text, nullable=False),
        sa.Column("uuid", Text, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("metadata_location", Text),
        sa.Column("document", sa.LargeBinary, nullable=False),
        sa.Column("protected", sa.Integer, nullable=False, server_default="0"),
    )
    op.create_table(
        "history",
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
    )
    op.create_table(
        "locations",
        sa.Column("warehouse", Text, primary_key=True),
        sa.Column("location", Text, primary_key=True),
        sa.Column("uuid", Text, nullable=False),
    )
    op.create_table(
        "dropped",
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
    )
    op.create_table(
        "transactions",
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
    )
    op.create_table(
        "staged",
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
    op.create_table(
        "idempotency",
        sa.Column("principal", Text, primary_key=True),
        sa.Column("operation", Text, primary_key=True),
        sa.Column("target", Text, primary_key=True),
        sa.Column("key", Text, primary_key=True),
        sa.Column("body_hash", Text, nullable=False),
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("answer", Text, nullable=False),
        sa.Column("expires_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "reports",
        sa.Column("id", Serial, primary_key=True, autoincrement=True),
        sa.Column("warehouse", Text, nullable=False),
        sa.Column("namespace", Text, nullable=False),
        sa.Column("name", Text, nullable=False),
        sa.Column("uuid", Text, nullable=False),
        sa.Column("received_ms", sa.BigInteger, nullable=False),
        sa.Column("principal", Text, nullable=False),
        sa.Column("report", Text, nullable=False),
    )
    op.create_table(
        "principals",
        sa.Column("principal", Text, primary_key=True),
        sa.Column("secret_hash", Text, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("disabled", sa.Integer, nullable=False, server_default="0"),
    )
    op.create_table(
        "grants",
        sa.Column("principal", Text, primary_key=True),
        sa.Column("warehouse", Text, primary_key=True),
        sa.Column("role", Text, nullable=False),
    )
    op.create_table(
        "tokens",
        sa.Column("token_hash", Text, primary_key=True),
        sa.Column("principal", Text, nullable=False),
        sa.Column("expires_ms", sa.BigInteger, nullable=False),
    )


def _create_indexes() -> None:
    op.create_index("entries_by_kind", "entries", ["warehouse", "namespace", "kind", "name"])
    op.create_index("entries_by_uuid", "entries", ["warehouse", "uuid"])
    op.create_index("history_by_name", "history", ["warehouse", "namespace", "name", "number"])
    op.create_index("history_by_time", "history", ["warehouse", "time_ms"])
    op.create_index("locations_by_uuid", "locations", ["warehouse", "uuid"])
    op.create_index("dropped_by_uuid", "dropped", ["warehouse", "uuid"])
    op.create_index("transactions_by_name", "transactions", ["warehouse", "name", "opened_ms"])
    op.create_index("transactions_open", "transactions", ["warehouse", "name"], unique=True, **OPEN)
    op.create_index("idempotency_by_expiry", "idempotency", ["expires_ms"])
    op.create_index("reports_by_table", "reports", ["warehouse", "namespace", "name", "id"])
    op.create_index("reports_by_time", "reports", ["received_ms"])
    op.create_index("tokens_by_expiry", "tokens", ["expires_ms"])
