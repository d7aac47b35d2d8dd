"""`calve journal`."""

from __future__ import annotations

import click

from calve.cli.options import settings_options
from calve.settings import Settings


@click.group()
def command() -> None:
    """Continue with another journal of acknowledged changes.

    \b
    Example:
      calve journal adopt
    """


@command.command()
@settings_options("home", "database", "journal")
def adopt(settings: Settings) -> None:
    """Continue with a journal that does not fit the database.

    A server refuses to start with an older copy of its journal or of its database. This command accepts that
    what is missing is lost: send it again from the source. Changes that the journal holds will land. Stop all
    servers before.

    \b
    Example:
      calve journal adopt
    """
    from calve.bootstrap import journal_mismatches, open_catalog, open_journal, require_catalog
    from ingest.landing.journals import adopt as adopt_one

    require_catalog(settings)
    catalog = open_catalog(settings)
    journal = open_journal(settings)
    try:
        found = journal_mismatches(catalog, journal)
        for mismatch in found:
            print(f"{mismatch.warehouse}: {mismatch.reason}")
            adopt_one(catalog.database, journal, mismatch)
        print(f"adopted for {len(found)} warehouses" if found else "the journal fits: nothing to do")
    finally:
        journal.close()
        journal.database.close()
        catalog.database.close()
