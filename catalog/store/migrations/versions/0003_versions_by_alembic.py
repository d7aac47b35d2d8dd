"""Alembic stores the version from here on.

Programs of version 1 and 2 read `schema_version` and refuse a newer database, so its row stays.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

schema_version = sa.table("schema_version", sa.column("version", sa.Integer))


def upgrade() -> None:
    op.execute(sa.delete(schema_version))
    op.execute(sa.insert(schema_version).values(version=3))
