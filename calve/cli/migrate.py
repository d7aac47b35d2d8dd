"""`calve migrate`."""

from __future__ import annotations

import click

from calve.cli.options import settings_options
from calve.settings import Settings


@click.command()
@settings_options("home", "database", "journal")
def command(settings: Settings) -> None:
    """Bring the database to the schema of this version.

    Run it once before the servers of a new version start on PostgreSQL. SQLite files are migrated by the
    server at its start.

    \b
    Example:
      calve migrate --database postgresql://calve@db/calve
    """
    from calve.bootstrap import migrate_ingest, reach_database
    from calve.startup import StartupError
    from catalog.store.migrations import SchemaMismatch, migrate

    try:
        database = reach_database(settings)
        before, after = migrate(database)
        migrate_ingest(settings, database)
    except SchemaMismatch as error:
        raise StartupError(str(error)) from error
    print(f"schema version {after}" if before == after else f"schema version {before} -> {after}")
