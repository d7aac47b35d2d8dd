"""`calve maintenance`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from calve.cli.connection import lake_options
from calve.cli.output import bytes_text, duration_text, format_option, json_text, print_rows
from calve.client import Lake

ACTIONS = ("compact", "archive", "expire", "rewrite-manifests", "remove-orphans")


@click.command()
@click.argument("table", required=False)
@click.option("--run", "action", type=click.Choice(ACTIONS), help="Do this to the table now.")
@click.option("--dry-run", is_flag=True, help="With --run: say what would be done.")
@format_option
@lake_options
def command(lake: Lake, table: str | None, action: str | None, dry_run: bool, form: str | None) -> None:
    """Show the health of all tables, and what runs next and why.

    With a table, it is that one alone. `--run` starts an action on it.

    \b
    Examples:
      calve maintenance
      calve maintenance shop.orders --format json
      calve maintenance shop.orders --run compact
      calve maintenance shop.orders --run remove-orphans --dry-run
    """
    if action is not None:
        if table is None:
            raise click.UsageError("--run needs a table: calve maintenance shop.orders --run compact")
        print(json_text(_run(lake, table, action, dry_run)))
        return
    found = lake.table(table).maintenance() if table is not None else lake.maintenance()
    if form == "json":
        print(json_text(found))
        return
    shown = [found] if table is not None else found["tables"]
    names = ("table", "data files", "deletes", "size", "snapshots", "next", "why", "last")
    print_rows(names, [_row(one) for one in shown], form, whole=("table",))
    if table is None and form is None:
        click.echo(_kept(found["kept-moments"]), err=True)


def _run(lake: Lake, table: str, action: str, dry_run: bool) -> dict[str, Any]:
    one = lake.table(table)
    calls = {
        "compact": one.compact,
        "archive": one.archive,
        "expire": one.expire,
        "rewrite-manifests": one.rewrite_manifests,
        "remove-orphans": one.remove_orphans,
    }
    return calls[action](dry_run=dry_run)


def _row(one: dict[str, Any]) -> tuple[Any, ...]:
    health = one["health"]
    return (
        ".".join((*one["namespace"], one["name"])),
        health["data-files"],
        health["delete-files"],
        bytes_text(health["data-bytes"]),
        health["snapshots"],
        _next(one),
        "; ".join(one["why"]) or "-",
        _last(one["last"]),
    )


def _next(one: dict[str, Any]) -> str:
    """The next action, and how long it has to wait if it has to."""
    if not one["next"]:
        return "-"
    wait_ms = (one["not-before-ms"] or 0) - datetime.now(UTC).timestamp() * 1000
    return f"{one['next']} in {duration_text(wait_ms)}" if wait_ms > 0 else str(one["next"])


def _kept(kept: dict[str, Any]) -> str:
    """How many old moments can still be read."""
    through = kept["thinned-number"]
    left = (
        f"of the commits up to {through:,}, {kept['kept']:,} are kept" if through else "all commits are kept"
    )
    return f"kept moments: {kept['policy']}; so far {left}"


def _last(done: dict[str, dict[str, Any]]) -> str:
    """The newest action and its age."""
    timed = [(facts["time-ms"], action) for action, facts in done.items() if "time-ms" in facts]
    if not timed:
        return "-"
    time_ms, action = max(timed)
    age_ms = datetime.now(UTC).timestamp() * 1000 - time_ms
    return f"{action}, {duration_text(max(0, round(age_ms, -3)))} ago"
