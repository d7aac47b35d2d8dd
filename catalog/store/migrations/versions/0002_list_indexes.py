"""Indexes for lists of transactions and for the purge queue."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

TO_PURGE = sa.text("expires_ms <= 0")


def upgrade() -> None:
    # Some databases of version 1 already have them, because its program created all tables that it knew.
    op.create_index(
        "transactions_by_time", "transactions", ["warehouse", "opened_ms", "id"], if_not_exists=True
    )
    op.create_index(
        "dropped_to_purge",
        "dropped",
        ["expires_ms"],
        sqlite_where=TO_PURGE,
        postgresql_where=TO_PURGE,
        if_not_exists=True,
    )
