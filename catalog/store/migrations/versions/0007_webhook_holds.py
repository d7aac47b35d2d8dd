"""Columns of webhooks: the number that each has read up to, and when it was brought up to date."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.add_column("webhooks", sa.Column("number", sa.BigInteger))
    op.add_column("webhooks", sa.Column("read_ms", sa.BigInteger))
