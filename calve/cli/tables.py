"""`calve tables`."""

from __future__ import annotations

import sys

import click

from calve.cli.connection import lake_options
from calve.cli.output import bytes_text, format_option, print_rows
from calve.cli.row_count import landed_tables, row_count
from calve.cli.table_facts import files_bytes, time_text
from calve.client import Lake

ADDED_TABLES = ("__changes", "__rejects")


@click.command()
@click.argument("namespace", required=False)
@click.option("--all", "show_all", is_flag=True, help="Also the tables __changes and __rejects.")
@format_option
@lake_options
def command(lake: Lake, namespace: str | None, show_all: bool, form: str | None) -> None:
    """List the tables with their rows, size and last commit.

    `calve table` pauses, rebuilds and resyncs one of them, `calve describe` shows its columns.

    \b
    Examples:
      calve tables
      calve tables shop --all --format json
    """
    is_for_people = form == "table" or (form is None and sys.stdout.isatty())
    rows, landed = [], landed_tables(lake)
    for name in lake.tables(namespace):
        if show_all or not name.endswith(ADDED_TABLES):
            metadata = lake.table(name).metadata(snapshots="refs")
            size = files_bytes(metadata)
            count = row_count(lake, name, metadata, landed)
            shown = bytes_text(size) if is_for_people else size
            rows.append((name, count, shown, time_text(metadata.get("last-updated-ms"))))
    if not rows and is_for_people:
        where = f"in {namespace}" if namespace else f"in {lake.warehouse}"
        print(f"There are no tables {where} yet. `calve demo` or `calve load` makes some.")
        return
    print_rows(("table", "rows", "size", "last commit"), rows, form)
