"""`calve check`."""

from __future__ import annotations

import click

from calve.cli.options import settings_options
from calve.settings import Settings


@click.command()
@click.option("--repair", is_flag=True, help="Write a missing metadata file again from its row.")
@settings_options("home", "database", "warehouse_root")
def command(settings: Settings, repair: bool) -> int:
    """Compare the catalog's rows with their metadata files.

    Prints each problem. The exit code is 1 if there is one.

    \b
    Examples:
      calve check
      calve check --repair --database postgresql://calve@db/calve
    """
    from calve.bootstrap import open_catalog, require_catalog
    from catalog.services.check import check

    require_catalog(settings)
    catalog = open_catalog(settings)
    checked, problems = 0, 0
    for finding in check(catalog, repair=repair):
        checked += 1
        for problem in finding.problems:
            problems += 1
            print(f"{finding.warehouse}: {finding.name}: {problem}")
        if finding.repaired:
            print(f"{finding.warehouse}: {finding.name}: wrote {finding.repaired} again")
    print(f"{checked} entries checked, {problems} problems")
    return 1 if problems else 0
