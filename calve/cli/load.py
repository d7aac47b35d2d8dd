"""`calve load`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Self

import click

from calve.cli.connection import lake_options
from calve.client import Lake, WriteResult
from calve.client.files import source
from calve.errors import DeadLetterWarning


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(), metavar="FILE...")
@click.option(
    "--table", required=True, metavar="NAMESPACE.NAME", help="The table; it is created if it is missing."
)
@click.option(
    "--key", metavar="COLUMNS", help="Key columns, with commas: a row replaces the one with its key."
)
@click.option("--no-wait", is_flag=True, help="End when the rows are durable, before they are visible.")
@click.option(
    "--timeout", "timeout_s", type=float, default=120.0, metavar="SECONDS", help="Wait no longer. [120]"
)
@click.option(
    "--idempotency-key",
    metavar="NAME",
    help="Names this load: if it is run again under the same name, rows that have arrived are recognised.",
)
@lake_options
def command(
    lake: Lake,
    files: tuple[str, ...],
    table: str,
    key: str | None,
    no_wait: bool,
    timeout_s: float,
    idempotency_key: str | None,
) -> int:
    """Load CSV, JSON and Parquet files into a table, also from S3.

    \b
    Examples:
      calve load orders.csv --table shop.orders --key id
      calve load s3://bucket/orders.parquet --table shop.orders --key id
      calve load day-1.parquet day-2.parquet --table shop.visits --idempotency-key visits-of-may
    """
    for path in files:
        source(path)  # a missing file is an error before anything is sent
    accepted = duplicates = dead = 0
    is_visible = True
    for number, path in enumerate(files):
        is_last = number == len(files) - 1
        result = _load(
            lake,
            path,
            table,
            key,
            idempotency_key and f"{idempotency_key}-{number}",
            timeout_s,
            is_last and not no_wait,
        )
        accepted, duplicates = accepted + result.accepted, duplicates + result.duplicates
        dead += result.dead_lettered
        is_visible = result.committed is not False
    print(f"{accepted:,} rows accepted, {duplicates:,} recognised as sent before, {dead:,} dead letters.")
    if dead:
        print(
            f"calve: {dead:,} rows cannot land: see calve dead-letters list --table {table}.", file=sys.stderr
        )
    if not is_visible:
        print(
            f"calve: the rows are durable, but not visible after {timeout_s:g} s: see calve status.",
            file=sys.stderr,
        )
    return 1 if dead or not is_visible else 0


def _load(
    lake: Lake, path: str, table: str, key: str | None, name: str | None, timeout_s: float, wait: bool
) -> WriteResult:
    import warnings

    with warnings.catch_warnings(), _Bar(path) as bar:
        warnings.simplefilter("ignore", DeadLetterWarning)  # the summary tells it
        return lake.load(
            path,
            table,
            key=[column.strip() for column in key.split(",")] if key else None,
            wait="commit" if wait else "journal",
            timeout_s=timeout_s if wait else None,
            idempotency_key=name,
            progress=bar.add,
        )


class _Bar:
    """A progress bar on a terminal, on stderr; nothing in a pipe."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.add: Callable[[int], None] = lambda _rows: None

    def __enter__(self) -> Self:
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        console = Console(stderr=True)
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TextColumn("{task.completed:,} rows"))
        self._progress = Progress(
            *columns, TimeElapsedColumn(), console=console, disable=not console.is_terminal, transient=True
        )
        self._progress.start()
        task = self._progress.add_task(Path(self._path).name, total=None)
        self.add = lambda rows: self._progress.advance(task, rows)
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
