"""`calve flush`."""

from __future__ import annotations

import click

from calve.cli.connection import lake_options
from calve.cli.output import duration_text, tell_wait
from calve.client import Lake


@click.command()
@click.argument("tables", nargs=-1, metavar="[TABLE]...")
@click.option("--no-wait", is_flag=True, help="Do not wait until everything is visible.")
@click.option(
    "--timeout", "timeout_s", type=float, default=30.0, metavar="SECONDS", help="Wait no longer. [30]"
)
@lake_options
def command(lake: Lake, tables: tuple[str, ...], no_wait: bool, timeout_s: float) -> int:
    """Make everything that was acknowledged visible now.

    \b
    Examples:
      calve flush
      calve flush shop.orders --timeout 60
    """
    if not no_wait:
        tell_wait(f"Waiting at most {timeout_s:g} s until everything is visible.")
    found = lake.flush(list(tables) or None, wait=not no_wait, timeout_s=timeout_s)
    if not found["success"]:
        raise click.ClickException(f"{found['error']}.")
    if no_wait:
        print("Everything that was acknowledged will be published now.")
    else:
        events, took = found["eventsFlushed"], duration_text(found["durationMs"])
        print(f"{events:,} changes became visible in {took}: {', '.join(found['paths']) or 'no table'}.")
    return 0
