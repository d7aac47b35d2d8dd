"""`calve tail`."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from calve.cli.connection import MomentType, lake_options
from calve.cli.history import difference
from calve.cli.output import moment_text
from calve.client import Lake
from calve.client.times import Moment

WAIT_S = 20.0
COLOURS = {"insert": "green", "read": "green", "update": "yellow", "delete": "red", "truncate": "red"}


@click.command()
@click.argument("table")
@click.option(
    "--from", "from_", type=MomentType(), metavar="MOMENT", help="Begin with the changes after this. [now]"
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["lines", "ndjson"]),
    help="How to print. [lines on a terminal, else ndjson]",
)
@lake_options
def command(lake: Lake, table: str, from_: Moment | None, form: str | None) -> int:
    """Print changes of a table as they become visible.

    It ends with Ctrl-C.

    \b
    Examples:
      calve tail shop.orders
      calve tail shop.orders --from "1 minute ago" --format ndjson
    """
    is_for_people = form == "lines" or (form is None and sys.stdout.isatty())
    try:
        follow(lake, table, from_, is_for_people)
    except KeyboardInterrupt:
        if is_for_people:
            print()
    return 0


def follow(lake: Lake, table: str, from_: Moment | None, is_for_people: bool) -> None:
    """Ask for changes after each commit of the warehouse."""
    found = lake.table(table)
    after: Moment = "now" if from_ is None else from_
    while True:
        page = found.changes(after)
        for change in page["changes"]:
            print(
                line(change) if is_for_people else json.dumps(change, ensure_ascii=False, default=str),
                flush=True,
            )
        after = page["to_number"]
        while lake.events(page["to_number"], limit=1, wait_s=WAIT_S)["head"] <= page["to_number"]:
            pass


def line(change: dict[str, Any]) -> str:
    """One change on one line."""
    operation = change["operation"]
    shown = click.style(f"{operation:8}", fg=COLOURS.get(operation))
    when = moment_text(change["commit_timestamp"] or "-")
    return f"{when}  {shown}  {difference(change['before'], change['after'])}"
