"""`calve tail`."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import Any

import click

from calve.cli.connection import MomentType, lake_options
from calve.cli.history import difference
from calve.cli.output import moment_text
from calve.client import Change, Lake

COLOURS = {"insert": "green", "read": "green", "update": "yellow", "delete": "red", "truncate": "red"}


@click.command()
@click.argument("tables", nargs=-1, metavar="[TABLE]...")
@click.option(
    "--from",
    "from_",
    type=MomentType(),
    metavar="MOMENT",
    help="Begin with the changes after this moment, or after a token. [now]",
)
@click.option("--snapshot", is_flag=True, help="Print the rows of the tables first.")
@click.option("--operations", metavar="LIST", help="Some of insert, update, delete, truncate. [all]")
@click.option("--where", metavar="PREDICATE", help="Only changes of such rows: \"status = 'new'\".")
@click.option("--columns", metavar="LIST", help="Only these columns, with commas between. [all]")
@click.option(
    "--format",
    "form",
    type=click.Choice(["lines", "ndjson"]),
    help="How to print. [lines on a terminal, else ndjson]",
)
@lake_options
def command(lake: Lake, tables: tuple[str, ...], form: str | None, columns: str | None, **more: Any) -> int:
    """Print changes as they become visible.

    Of tables, of patterns such as `shop.*`, or of all. It ends with Ctrl-C, and connects again if the server
    restarts.

    \b
    Examples:
      calve tail shop.orders
      calve tail "shop.*" --from "1 minute ago" --format ndjson
      calve tail shop.orders --snapshot --where "status = 'new'"
    """
    is_for_people = form == "lines" or (form is None and sys.stdout.isatty())
    chosen = [name.strip() for name in columns.split(",")] if columns else None
    try:
        for batch in lake.subscribe(tables, columns=chosen, **more):
            for change in batch.events:
                print(line(change, with_table=len(tables) != 1) if is_for_people else json_line(change))
            sys.stdout.flush()
    except KeyboardInterrupt:
        if is_for_people:
            print()
    return 0


def json_line(change: Change) -> str:
    return json.dumps(dataclasses.asdict(change), ensure_ascii=False, default=str)


def line(change: Change, *, with_table: bool = False) -> str:
    """One change on one line."""
    shown = click.style(f"{change.operation:8}", fg=COLOURS.get(change.operation))
    when = moment_text(change.commit_timestamp or "-")
    where = f"{change.table}  " if with_table else ""
    return f"{when}  {shown}  {where}{difference(change.before, change.after)}"
