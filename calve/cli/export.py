"""`calve export`."""

from __future__ import annotations

from pathlib import Path

import click

from calve.cli.connection import as_of_option, lake_options
from calve.cli.output import bytes_text
from calve.cli.query import without_summary
from calve.client import Lake
from calve.client.names import levels_of
from calve.client.times import Moment

FORMATS = {".parquet": "parquet", ".csv": "csv", ".ndjson": "ndjson", ".jsonl": "ndjson", ".arrow": "arrow"}


@click.command()
@click.argument("table")
@click.argument("file", type=click.Path(path_type=Path))
@as_of_option("Copy the table as it was then.")
@lake_options
def command(lake: Lake, table: str, file: Path, as_of: Moment | None) -> None:
    """Copy a table at one moment into a local file.

    The ending says the format: .parquet, .csv, .ndjson, .arrow (a stream).

    \b
    Examples:
      calve export shop.orders orders.parquet
      calve export shop.orders yesterday.csv --as-of yesterday
    """
    form = FORMATS.get(file.suffix)
    if form is None:
        raise click.BadParameter(f"{file} must end in {', '.join(FORMATS)}.", param_hint="FILE")
    name = ".".join('"' + level.replace('"', '""') + '"' for level in levels_of(table))
    pieces = lake.stream(f"SELECT * FROM {name}", format=form, as_of=as_of)  # noqa: S608 - quoted
    partial = file.with_name(f"{file.name}.partial")
    try:
        with partial.open("wb") as target:
            for piece in without_summary(pieces) if form == "ndjson" else pieces:
                target.write(piece)
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)
    print(f"{table} is in {file}, {bytes_text(file.stat().st_size)}.")
