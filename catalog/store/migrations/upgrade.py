"""Runs Alembic on an existing connection."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config

FOLDER = Path(__file__).parent


def upgrade(connection: sa.Connection, before: int) -> None:
    """Run all steps after version `before`, in the transaction of the connection."""
    config = configuration(connection)
    if before:
        # Versions 1 and 2 were stored in `schema_version`. For later versions this changes nothing.
        command.stamp(config, f"{before:04d}")
    command.upgrade(config, "head")


def configuration(connection: sa.Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
