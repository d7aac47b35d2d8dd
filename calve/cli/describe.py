"""`calve describe`."""

from __future__ import annotations

import sys

import click

from calve.cli.connection import lake_options
from calve.cli.output import bytes_text, format_option, json_text, print_rows
from calve.cli.row_count import landed_tables, row_count
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
    known = lake.table(table)
    metadata = known.metadata()
    found = description(known.name, metadata, row_count(lake, known.name, metadata, landed_tables(lake)))
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
