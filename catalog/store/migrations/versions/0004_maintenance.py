"""Tables for maintenance: kept moments, policies, the state of tables, and files to delete."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

Text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
Serial = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "maintenance",
        sa.Column("warehouse", Text, primary_key=True),
        sa.Column("thinned_number", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("lease_holder", Text, nullable=False),
        sa.Column("lease_until_ms", sa.BigInteger, nullable=False, server_default="0"),
    )
    op.create_table(
        "moments",
        sa.Column("warehouse", Text, primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True),
        sa.Column("time_ms", sa.BigInteger, nullable=False),
        sa.Column("pinned_until_ms", sa.BigInteger, nullable=False, server_default="0"),
    )
    op.create_table(
        "maintenance_policies",
        sa.Column("warehouse", Text, primary_key=True),
        sa.Column("namespace", Text, primary_key=True),
        sa.Column("name", Text, primary_key=True),
        sa.Column("policy", Text, nullable=False),
    )
    op.create_table(
        "maintenance_tables",
        sa.Column("warehouse", Text, primary_key=True),
        sa.Column("uuid", Text, primary_key=True),
        sa.Column("files_after", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("requested", Text, nullable=False),
        sa.Column("retry_after_ms", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("done", Text, nullable=False, server_default="{}"),
    )
    op.create_table(
        "expired_files",
        sa.Column("id", Serial, primary_key=True, autoincrement=True),
        sa.Column("warehouse", Text, nullable=False),
        sa.Column("uuid", Text, nullable=False),
        sa.Column("due_ms", sa.BigInteger, nullable=False),
        sa.Column("files", sa.LargeBinary, nullable=False),
    )
    op.create_index("expired_files_by_table", "expired_files", ["warehouse", "uuid", "due_ms"])
