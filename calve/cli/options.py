"""Options that several commands have: settings, the server to talk to, the form of a list."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from calve.settings import Settings
from calve.settings_sources import choices, default_text, flag, kind_of

Function = Callable[..., Any]


def settings_options(*names: str, **short: str) -> Callable[[Function], Function]:
    """`--config` and an option for each named setting, for all if none is named.

    `short` gives a setting a second, shorter option. The command gets the argument `settings`, read from
    these options and all other sources.
    """
    chosen = ["config", *names] if names else list(Settings.model_fields)

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def command(**arguments: Any) -> Any:
            flags = {name: arguments.pop(name) for name in chosen}
            given = {name: value for name, value in flags.items() if value is not None}
            return function(settings=Settings(**given), **arguments)

        decorated: Function = command
        for name in reversed(chosen):
            decorated = _option(name, *([short[name]] if name in short else []))(decorated)
        return decorated

    return decorate


def _option(name: str, *short: str) -> Callable[[Function], Function]:
    field = Settings.model_fields[name]
    default = default_text(field)
    words = f"{field.description} [{default}]" if default else field.description
    if kind_of(field) is bool:
        return click.option(f"{flag(name)}/--no-{flag(name)[2:]}", name, default=None, help=words)
    kind = click.Choice(choices(field)) if choices(field) else kind_of(field)
    metavar = None if choices(field) else name.removesuffix("_max").rsplit("_", 1)[-1].upper()
    return click.option(flag(name), *short, name, type=kind, metavar=metavar, help=words)


def server_options(function: Function) -> Function:
    """`--uri` and `--token` of the server that the command talks to."""
    token = click.option("--token", metavar="TOKEN", help="Bearer token, if the server requires one.")
    return uri_option(token(function))


uri_option = click.option(
    "--uri", metavar="URI", help="Address of the server. [http://HOST:PORT of the settings]"
)

format_option = click.option(
    "--format",
    "form",
    type=click.Choice(["table", "tsv", "json"]),
    help="How to print the list. [table on a terminal, else tsv: tab-separated, without a heading]",
)


def print_rows(columns: Sequence[str], rows: Sequence[Sequence[Any]], form: str | None) -> None:
    """A list for people or for programs, as `--format` or the kind of stdout says."""
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
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(*(flat(cell) for cell in row))
        Console().print(table, markup=False, highlight=False)


def flat(cell: Any) -> str:
    """A cell as one line without tabs."""
    if isinstance(cell, dict):
        cell = ", ".join(f"{value} in {key}" for key, value in cell.items()) or "none"
    return " ".join(str(cell).split())
