"""`calve tables`."""

from __future__ import annotations

import sys

import click

from calve.cli.connection import lake_options
from calve.cli.output import bytes_text, format_option, print_rows
from calve.cli.table_facts import current_summary, time_text
from calve.client import Lake

ADDED_TABLES = ("__changes", "__rejects")


@click.command()
@click.argument("namespace", required=False)
@click.option("--all", "show_all", is_flag=True, help="Also the tables __changes and __rejects.")
@format_option
@lake_options
def command(lake: Lake, namespace: str | None, show_all: bool, form: str | None) -> None:
    """List the tables with their rows, size and last commit.

    \b
    Examples:
      calve tables
      calve tables shop --all --format json
    """
    rows = []
    for name in lake.tables(namespace):
        if show_all or not name.endswith(ADDED_TABLES):
            metadata = lake.table(name).metadata(snapshots="refs")
            summary = current_summary(metadata)
            size = bytes_text(summary.bytes) if form in (None, "table") else summary.bytes
            rows.append((name, summary.rows, size, time_text(metadata.get("last-updated-ms"))))
    if not rows and (form == "table" or (form is None and sys.stdout.isatty())):
        where = f"in {namespace}" if namespace else f"in {lake.warehouse}"
        print(f"There are no tables {where} yet. `calve demo` or `calve load` makes some.")
        return
    print_rows(("table", "rows", "size", "last commit"), rows, form)
