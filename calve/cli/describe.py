"""`calve describe`."""

from __future__ import annotations

import sys

import click

from calve.cli.connection import lake_options
from calve.cli.output import bytes_text, format_option, json_text, print_rows
from calve.cli.table_facts import description
from calve.client import Lake


@click.command()
@click.argument("table")
@format_option
@lake_options
def command(lake: Lake, table: str, form: str | None) -> None:
    """Show the columns, partitioning and size of a table.

    In a pipe it is the columns alone; `--format json` has everything.

    \b
    Examples:
      calve describe shop.orders
      calve describe shop.orders --format json
    """
    found = description(lake.table(table).name, lake.table(table).metadata())
    if form == "json":
        print(json_text(found))
        return
    columns = found.pop("columns")
    if form == "table" or (form is None and sys.stdout.isatty()):
        found["size"] = bytes_text(found.pop("bytes"))
        found["partitioning"] = ", ".join(found["partitioning"]) or "none"
        found["properties"] = (
            ", ".join(f"{name}={value}" for name, value in found["properties"].items()) or "none"
        )
        for name, value in found.items():
            print(f"{name:15} {value}")
        print()
    names = ("column", "type", "null", "key", "comment")
    print_rows(names, [[column[name] for name in names] for column in columns], form)
