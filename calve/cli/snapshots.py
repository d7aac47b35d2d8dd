"""`calve snapshots`."""

from __future__ import annotations

import click

from calve.cli.connection import as_of_option, lake_options
from calve.cli.output import format_option, moment_text, print_rows
from calve.client import Lake
from calve.client.times import Moment


@click.command()
@click.argument("table")
@as_of_option("The snapshots that the table had then.")
@format_option
@lake_options
def command(lake: Lake, table: str, as_of: Moment | None, form: str | None) -> None:
    """List the snapshots of a table, the newest first.

    `records` are rows in data files, `deletes` are positions of rows in them that are deleted.

    \b
    Examples:
      calve snapshots shop.orders
      calve snapshots shop.orders --as-of yesterday --format json
    """
    rows = [
        (
            one["snapshot_id"],
            moment_text(one["time"]),
            one["number"] if one["number"] is not None else "-",
            one["operation"] or "-",
            one["summary"].get("total-records", "0"),
            one["summary"].get("total-position-deletes", "0"),
            one["principal"] or "-",
            ", ".join(one["refs"]) or "-",
        )
        for one in lake.table(table).snapshots(as_of=as_of)
    ]
    print_rows(("snapshot", "time", "commit", "operation", "records", "deletes", "by", "refs"), rows, form)
