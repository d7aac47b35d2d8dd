"""`calve warehouse`."""

from __future__ import annotations

import click

from calve.cli.options import settings_options
from calve.cli.output import format_option, print_rows
from calve.settings import Settings

_options = settings_options("home", "database", "warehouse_root")


@click.group()
def command() -> None:
    """Create, list and drop warehouses.

    A warehouse has tables, grants and a history of its own. `main` exists from the first start of the server.

    \b
    Examples:
      calve warehouse create analytics --root s3://bucket/analytics
      calve warehouse list
    """


@command.command()
@click.argument("name")
@click.option("--root", metavar="LOCATION", help="Where its tables are. [beside main]")
@_options
def create(settings: Settings, name: str, root: str | None) -> None:
    """Create a warehouse.

    \b
    Example:
      calve warehouse create analytics --root s3://bucket/analytics
    """
    from calve.bootstrap import open_catalog
    from catalog.services import warehouses

    created = warehouses.create(open_catalog(settings), name, root)
    print(f"{created.name}\t{created.root}")


@command.command(name="list")
@format_option
@_options
def list_(settings: Settings, form: str | None) -> None:
    """List all warehouses with their root and number of commits.

    \b
    Example:
      calve warehouse list --format json
    """
    from calve.bootstrap import open_catalog, require_catalog

    require_catalog(settings)
    catalog = open_catalog(settings)
    rows = [
        (found.name, found.root, (catalog.entries.number(found.name) or (0, 0))[0])
        for found in catalog.warehouses.all()
    ]
    print_rows(("name", "root", "commits"), rows, form)


@command.command()
@click.argument("name")
@_options
def drop(settings: Settings, name: str) -> None:
    """Drop an empty warehouse. Its files stay.

    \b
    Example:
      calve warehouse drop analytics
    """
    from calve.bootstrap import open_catalog, require_catalog
    from catalog.services import warehouses

    require_catalog(settings)
    warehouses.drop(open_catalog(settings), name)
