"""`calve migrate`: bring the database to the schema of this program."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from calve.settings import Settings

if TYPE_CHECKING:
    from calve.cli._flags import Subparsers


def add(subparsers: Subparsers) -> None:
    subparsers.add_parser("migrate", help="bring the database to this program's schema", description=__doc__)


def run(_args: argparse.Namespace, settings: Settings) -> int:
    from calve.ingestion import migrate_ingest
    from calve.opening import reach_database
    from calve.startup import StartupError
    from catalog.store.migrations import SchemaMismatch, migrate

    try:
        database = reach_database(settings)
        before, after = migrate(database)
        migrate_ingest(settings, database)
    except SchemaMismatch as error:
        raise StartupError(str(error)) from error
    print(f"schema version {after}" if before == after else f"schema version {before} -> {after}")
    return 0
