"""What commands print: lists for people or for programs, and the words for sizes and times."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import click

format_option = click.option(
    "--format",
    "form",
    type=click.Choice(["table", "tsv", "json"]),
    help="How to print the list. [table on a terminal, else tsv: tab-separated, without a heading]",
)


def print_rows(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], form: str | None, *, whole: Sequence[str] = ()
) -> None:
    """A list for people or for programs, as `--format` or the kind of stdout says.

    On a narrow terminal the cells of the columns in `whole` stay on one line.
    """
    form = form or ("table" if sys.stdout.isatty() else "tsv")
    if form == "json":
        print(json.dumps([dict(zip(columns, row, strict=True)) for row in rows], indent=2))
    elif form == "tsv":
        for row in rows:
            print("\t".join(flat(cell) for cell in row))
    else:
        from rich.console import Console
        from rich.table import Table

        table = Table(box=None, header_style="bold")
        for column in columns:
            table.add_column(column, overflow="fold", no_wrap=column in whole)
        for row in rows:
            table.add_row(*(flat(cell) for cell in row))
        Console().print(table, markup=False, highlight=False)


def json_text(value: Any) -> str:
    """For people and for `jq`."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def json_or_text(text: str) -> Any:
    """A value on the command line: JSON if it can be, else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def bytes_text(count: int) -> str:
    """12.3 MB."""
    size, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"


def duration_text(ms: float) -> str:
    """35 ms, 1.2 s, 3 min, 2 h, 5 days."""
    seconds = ms / 1000
    if seconds < 1:
        return f"{ms:.0f} ms"
    for limit_s, divisor, unit in ((60, 1, "s"), (3600, 60, "min"), (86_400, 3600, "h")):
        if seconds < limit_s:
            return f"{seconds / divisor:.1f} {unit}" if unit == "s" else f"{seconds / divisor:.0f} {unit}"
    return f"{seconds / 86_400:.0f} days"


def tell_wait(words: str) -> None:
    """Say on a terminal what a command waits for; scripts are told nothing."""
    if sys.stderr.isatty():
        print(words, file=sys.stderr, flush=True)


def moment_text(iso: str) -> str:
    """2026-11-15T01:02:03.123Z as people read it, in UTC."""
    return iso.replace("T", " ").replace("Z", " UTC")


def flat(cell: Any) -> str:
    """A cell as one line without tabs."""
    if isinstance(cell, dict):
        cell = ", ".join(f"{value} in {key}" for key, value in cell.items()) or "none"
    return " ".join(str(cell).split())
