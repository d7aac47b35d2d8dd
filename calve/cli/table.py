"""`calve table`: the changes of one table under control."""

from __future__ import annotations

import time

import click

from calve.cli.connection import lake_options
from calve.cli.output import json_or_text, json_text, tell_wait
from calve.client import Lake

LOOK_EVERY_S = 0.5


@click.group()
def command() -> None:
    """Pause, resume, rebuild and resync a table; set its settings.

    `calve tables` lists the tables.

    \b
    Examples:
      calve table pause shop.orders --reason "the schema is being changed"
      calve table skip shop.orders
      calve table resume shop.orders
      calve table resync shop.orders
      calve table rebuild shop.orders
      calve table settings shop.orders mirror-changed=accept
    """


@command.command()
@click.argument("table")
@click.argument("changed", nargs=-1, metavar="[NAME=VALUE]...")
@lake_options
def settings(lake: Lake, table: str, changed: tuple[str, ...]) -> None:
    """Show how changes of a table are treated, as JSON, or change some of these settings.

    VALUE is JSON if it can be, else text. The settings that are not named stay.

    \b
    Examples:
      calve table settings shop.orders
      calve table settings shop.orders mirror-changed=accept deletes=soft
      calve table settings shop.orders 'key=["id"]'
    """
    pairs = [text.partition("=") for text in changed]
    if any(not name or not sign for name, sign, _ in pairs):
        raise click.UsageError("Give each setting as NAME=VALUE, for example deletes=soft.")
    given = {name: json_or_text(value) for name, _, value in pairs}
    known = lake.table(table)
    click.echo(json_text(known.set_ingest_settings(**given) if given else known.ingest_settings()))


@command.command()
@click.argument("table")
@click.option("--reason", metavar="TEXT", help="Shown in the status.")
@lake_options
def pause(lake: Lake, table: str, reason: str | None) -> None:
    """Pause a table: its changes are acknowledged and wait, and so do source transactions that touch it.

    \b
    Example:
      calve table pause shop.orders
    """
    click.echo(f"{table} is {lake.table(table).pause(reason)['state']}")


@command.command()
@click.argument("table")
@lake_options
def resume(lake: Lake, table: str) -> None:
    """Resume a table: what has waited lands.

    \b
    Example:
      calve table resume shop.orders
    """
    click.echo(f"{table} is {lake.table(table).resume()['state']}")


@command.command()
@click.argument("table")
@click.option("--up-to", type=click.IntRange(min=1), metavar="ID", help="Up to this id of the journal.")
@lake_options
def skip(lake: Lake, table: str, up_to: int | None) -> None:
    """Make dead letters of the changes of a paused table that wait first, so that later changes can land.

    \b
    Example:
      calve table skip shop.orders
    """
    found = lake.table(table).skip(up_to)
    click.echo(f"{found['skipped']} events of {table} are dead letters now")


@command.command()
@click.argument("table")
@click.option("--end", is_flag=True, help="All rows have been sent: replace those of the table.")
@click.option("--abort", is_flag=True, help="Give it up: nothing is deleted.")
@lake_options
def resync(lake: Lake, table: str, end: bool, abort: bool) -> None:
    """Begin or end a resync: its source sends the whole table again, and what it no longer has is deleted.

    \b
    Examples:
      calve table resync shop.orders
      calve table resync shop.orders --end
    """
    if end and abort:
        raise click.UsageError("Give --end or --abort, not both.")
    known = lake.table(table)
    found = known.end_resync() if end else known.abort_resync() if abort else known.begin_resync()
    click.echo(f"{table}: resync {found['generation']} is {found['state']}")


@command.command()
@click.argument("table")
@click.option("--reason", metavar="TEXT", help="Kept and shown with the rebuild.")
@click.option("--wait", is_flag=True, help="Return when the rebuilt mirror is visible.")
@lake_options
def rebuild(lake: Lake, table: str, reason: str | None, wait: bool) -> None:
    """Rebuild the mirror of a table from its changes table, in one commit.

    \b
    Example:
      calve table rebuild shop.orders
    """
    lake.table(table).rebuild(reason)
    if wait:
        tell_wait(f"Waiting until a worker has rebuilt {table}. Ctrl-C ends the wait, not the rebuild.")
    while wait:
        found = lake.table(table).ingest_settings()["state"]["rebuild"]
        if found["state"] == "failed":
            raise click.ClickException(found["error"])
        if found["state"] == "none":
            click.echo(f"{table} was rebuilt in commit {found['rebuilt-number']}")
            return
        time.sleep(LOOK_EVERY_S)
    click.echo(f"the rebuild of {table} is requested")
