"""A table for the queries of all server processes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

Text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "queries",
        sa.Column("id", Text, primary_key=True),
        sa.Column("process", Text, nullable=False),
        sa.Column("caller", Text, nullable=False),
        sa.Column("warehouse", Text, nullable=False),
        sa.Column("document", Text, nullable=False),
        sa.Column("is_ended", sa.Integer, nullable=False),
        sa.Column("cancelled_by", Text, nullable=False),
        sa.Column("saved_ms", sa.BigInteger, nullable=False),
    )
