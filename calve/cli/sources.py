"""`calve sources`: the sources of changes."""

from __future__ import annotations

import json
from typing import IO, Any

import click

from calve.cli.connection import lake_options
from calve.cli.output import format_option, print_rows
from calve.cli.table_facts import time_text
from calve.client import Lake


@click.group(invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """List sources, choose what is stored, pause and resume them.

    `calve sources` alone is `calve sources list`.

    \b
    Examples:
      calve sources
      calve sources list --format json
      calve sources set shop --exclude '*.tmp_*' --hash '*.customers:email'
      calve sources pause shop --reason "the database is being moved"
      calve sources resume shop
      calve sources epoch shop --reason "the standby was promoted"
    """
    if ctx.invoked_subcommand is None:
        with list_.make_context("list", [], parent=ctx) as listing:
            list_.invoke(listing)


@command.command(name="list")
@format_option
@lake_options
def list_(lake: Lake, form: str | None) -> None:
    """List the sources with their state, and how far each has landed.

    \b
    Example:
      calve sources list --format json
    """
    rows = [
        (
            source["name"],
            source["state"],
            source["pending-events"],
            source["last-position"] or "-",
            time_text(source["last-landed-ms"]),
            source["reason"] or "-",
        )
        for source in lake.sources()
    ]
    print_rows(
        ("source", "state", "pending", "last position", "last landed", "reason"),
        rows,
        form,
        whole=("source", "last landed"),
    )


@command.command()
@click.argument("source")
@lake_options
def show(lake: Lake, source: str) -> None:
    """Show one source as JSON: its rules, and each table that it feeds.

    \b
    Example:
      calve sources show shop
    """
    _print(lake.source(source))


@command.command(name="set")
@click.argument("source")
@click.option("--include", multiple=True, metavar="PATTERN", help="Store only these tables.")
@click.option("--exclude", multiple=True, metavar="PATTERN", help="Do not store these tables.")
@click.option("--route", multiple=True, metavar="PATTERN=NAME", help="Store these tables under another name.")
@click.option("--drop", multiple=True, metavar="PATTERN:COLUMN", help="Do not store this column.")
@click.option("--hash", "hashed", multiple=True, metavar="PATTERN:COLUMN", help="Store its hash only.")
@click.option("--file", "file", type=click.File("rb"), help="All rules as JSON, in place of the options.")
@lake_options
def set_(
    lake: Lake,
    source: str,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    route: tuple[str, ...],
    drop: tuple[str, ...],
    hashed: tuple[str, ...],
    file: IO[bytes] | None,
) -> None:
    """Set all rules of a source; rules that are not given are removed. `*` stands for any text.

    \b
    Examples:
      calve sources set shop --include 'public.*' --route 'public.*=shop.*'
      calve sources set shop --drop '*:password' --hash 'shop.customers:email'
      calve sources set shop --file -
    """
    rules: dict[str, Any] = {
        "include": list(include),
        "exclude": list(exclude),
        "route": [{"from": pattern, "to": to} for pattern, to in _pairs("--route", route, "=")],
        "drop-columns": _columns("--drop", drop),
        "hash-columns": _columns("--hash", hashed),
    }
    if file is not None:
        if any(rules.values()):
            raise click.UsageError("Give the rules as options or as --file, not both.")
        try:
            rules = json.load(file)
        except ValueError as error:
            raise click.BadParameter(f"it is not JSON: {error}", param_hint="--file") from error
    _print(lake.set_source(source, **rules)["rules"])


@command.command()
@click.argument("source")
@lake_options
def delete(lake: Lake, source: str) -> None:
    """Delete the rules of a source: everything that it sends is stored.

    \b
    Example:
      calve sources delete shop
    """
    lake.delete_source(source)


@command.command()
@click.argument("source")
@click.option("--reason", metavar="TEXT", help="Shown in the status.")
@lake_options
def pause(lake: Lake, source: str, reason: str | None) -> None:
    """Pause a source: its changes are acknowledged and kept, and do not land until it is resumed.

    \b
    Example:
      calve sources pause shop --reason "the database is being moved"
    """
    click.echo(f"{source} is {lake.pause_source(source, reason)['state']}")


@command.command()
@click.argument("source")
@lake_options
def resume(lake: Lake, source: str) -> None:
    """Resume a source: what has waited lands.

    \b
    Example:
      calve sources resume shop
    """
    click.echo(f"{source} is {lake.resume_source(source)['state']}")


@command.command()
@click.argument("source")
@click.option("--reason", metavar="TEXT", help="Shown with the epoch.")
@click.option("--same-history", is_flag=True, help="Begin none: accept decreasing positions in this one.")
@lake_options
def epoch(lake: Lake, source: str, reason: str | None, same_history: bool) -> None:
    """Begin a new epoch of a source: what it sends from now on is newer than everything before.

    Needed after a failover or a restore, if the source is held or if its log may have gone back.

    \b
    Example:
      calve sources epoch shop --reason "the standby was promoted"
    """
    found = lake.begin_epoch(source, reason, same_history=same_history)
    click.echo(f"{source} is in epoch {found['epoch']}")


def _print(document: dict[str, Any]) -> None:
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def _pairs(option: str, given: tuple[str, ...], separator: str) -> list[tuple[str, str]]:
    found = []
    for text in given:
        first, _, second = text.rpartition(separator)
        if not first or not second:
            raise click.BadParameter(f"{text!r} has no {separator!r} between two names.", param_hint=option)
        found.append((first, second))
    return found


def _columns(option: str, given: tuple[str, ...]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for pattern, column in _pairs(option, given, ":"):
        found.setdefault(pattern, []).append(column)
    return found
