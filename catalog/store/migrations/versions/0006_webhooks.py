"""The table of webhooks."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

Text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "webhooks",
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
    )
    op.create_index("webhooks_by_warehouse", "webhooks", ["warehouse", "created_ms"])
