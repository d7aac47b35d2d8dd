"""`calve diff`."""

from __future__ import annotations

import sys
from typing import Any

import click

from calve.cli.connection import MomentType, lake_options
from calve.cli.history import row_text
from calve.cli.output import json_text, moment_text
from calve.client import Lake
from calve.client.times import Moment

COMMIT_TIMESTAMP = "_commit_timestamp"


@click.command()
@click.argument("table")
@click.option(
    "--from", "from_", type=MomentType(), required=True, metavar="MOMENT", help="The earlier moment."
)
@click.option("--to", type=MomentType(), metavar="MOMENT", help="The later moment. [now]")
@click.option("--limit", type=click.IntRange(0), default=20, help="Most rows of each kind. [20]")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json"]),
    help="How to print. [table on a terminal, else json]",
)
@lake_options
def command(lake: Lake, table: str, from_: Moment, to: Moment | None, limit: int, form: str | None) -> None:
    """Show the rows that differ between two moments.

    \b
    Examples:
      calve diff shop.orders --from "1 minute ago"
      calve diff shop.orders --from 1200 --to 1234 --format json
    """
    found = lake.table(table).diff(from_, to, limit=limit)
    if form == "json" or (form is None and not sys.stdout.isatty()):
        print(json_text(found))
        return
    for line in lines(found):
        click.echo(line)


def lines(found: dict[str, Any]) -> list[str]:
    """The difference for people: `+` added, `-` removed, `~` changed with the old and the new value."""
    rows = found["rows"]
    start, end = (
        f"{moment_text(found[name]['time'])} (commit {found[name]['number']})" for name in ("from", "to")
    )
    lines = [f"from {start} to {end}"]
    lines += [f"column {_column(change)}" for change in found["schema"]]
    lines += [click.style(f"+ {row_text(_own(row))}", fg="green") for row in rows["added"]]
    lines += [line for row in rows["changed"] for line in _changed(row)]
    lines += [click.style(f"- {row_text(_own(row))}", fg="red") for row in rows["removed"]]
    counts = (
        f"{rows['added_count']:,} added, {rows['changed_count']:,} changed, {rows['removed_count']:,} removed"
    )
    if rows["truncated"]:
        counts += "; not all are shown: --limit shows more"
    return [*lines, counts]


def _changed(row: dict[str, Any]) -> list[str]:
    cells = [
        (name, row_text({"": row["old"][name]})[1:], row_text({"": new})[1:])
        for name, new in _own(row["new"]).items()
    ]
    width = max((len(name) for name, _, _ in cells), default=0)
    old_width = max((len(old) for _, old, _ in cells), default=0)
    head = click.style(f"~ {row_text(row['key'])}", fg="yellow")
    if not cells:
        return [f"{head}  written again with the same values"]
    return [head, *(f"    {name:{width}}  {old:{old_width}}  →  {new}" for name, old, new in cells)]


def _own(row: dict[str, Any]) -> dict[str, Any]:
    """Without the time at which the row was written, which ingest adds and every change changes."""
    return {name: value for name, value in row.items() if name != COMMIT_TIMESTAMP}


def _column(change: dict[str, Any]) -> str:
    types = " → ".join(str(type_) for type_ in (change["old"], change["new"]) if type_ is not None)
    return f"{change['column']} {change['change']}{types and f': {types}'}"
