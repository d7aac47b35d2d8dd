"""`calve status`."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from calve.cli.connection import lake_options
from calve.cli.output import bytes_text, duration_text, json_text
from calve.cli.table_facts import time_text
from calve.client import Lake
from calve.errors import Unavailable

if TYPE_CHECKING:
    from rich.console import Group

EVERY_S = 1.0


@click.command()
@click.option("--once", is_flag=True, help="Show it once, and end.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["page", "json"]),
    help="How to print. [page on a terminal, else json]",
)
@lake_options
def command(lake: Lake, once: bool, form: str | None) -> int:
    """Show what waits, and how far each table is.

    On a terminal this is a page that renews itself until Ctrl-C. In a pipe it is one JSON document.

    \b
    Examples:
      calve status
      calve status --once
      calve status --format json
    """
    if form == "json" or (form is None and not sys.stdout.isatty()):
        print(json_text(lake.status()))
        return 0
    from rich.console import Console
    from rich.live import Live

    if once:
        Console(highlight=False).print(page(lake.status()))
        return 0
    try:
        with Live(page(lake.status()), console=Console(highlight=False), auto_refresh=False) as live:
            while True:
                time.sleep(EVERY_S)
                live.update(_next_page(lake), refresh=True)
    except KeyboardInterrupt:
        return 0


def _next_page(lake: Lake) -> Any:
    from rich.text import Text

    try:
        return page(lake.status())
    except Unavailable as error:  # it may come back
        return Text(f"{error.message} Trying again.", style="yellow")


def page(status: dict[str, Any]) -> Group:
    """The status for people."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    landing, buffer = status["landing"], status["buffer"]
    head = Text.assemble(
        (f"{status['warehouse']}", "bold"), f"  {status['state']}  {time_text(status['time'])}"
    )
    facts = Table(box=None, show_header=False, padding=(0, 2))
    facts.add_row("waiting", f"{buffer['eventCount']:,} changes, {bytes_text(buffer['totalSizeBytes'])}")
    facts.add_row("journal", f"{buffer['utilization']:.0%} full, load {status['loadLevel']}")
    facts.add_row("last publish", time_text(landing.get("last-publish-ms")))
    facts.add_row("worker", str(landing.get("worker", "ok")))
    tables = Table(box=None, padding=(0, 2), header_style="bold")
    for column in ("table", "landed", "waiting", "lag", "rejects", "notice"):
        tables.add_column(column, justify="left" if column in ("table", "notice") else "right")
    for name, table in sorted(landing["tables"].items()):
        tables.add_row(*map(Text, _table_row(name, table)))
    parts: list[Any] = [head, Text(), facts, Text(), tables]
    if landing.get("stalled"):
        parts += [Text(), Text(str(landing["stalled"]), style="yellow")]
    return Group(*parts)


def _table_row(name: str, table: dict[str, Any]) -> tuple[str, ...]:
    lag = duration_text(table["lag-ms"]) if table.get("lag-ms") else "-"
    return (
        name,
        f"{table.get('events', 0):,}",
        f"{table.get('pending-events', 0):,}",
        lag,
        f"{table.get('rejects', 0):,}",
        str(table.get("notice", "")),
    )
