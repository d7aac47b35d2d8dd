"""`calve history`."""

from __future__ import annotations

import json
from typing import Any

import click

from calve.cli.connection import lake_options
from calve.cli.output import format_option, json_text, moment_text, print_rows
from calve.client import Lake


@click.command()
@click.argument("table")
@click.argument("key")
@format_option
@lake_options
def command(lake: Lake, table: str, key: str, form: str | None) -> None:
    """Show every version of a row, oldest first.

    Each has the time, the operation, the transaction and what it changed. KEY is the value of the key column,
    or `region=eu,id=17` for a key of several columns.

    \b
    Examples:
      calve history shop.orders 17
      calve history shop.stock warehouse=north,item=pen --format json
    """
    versions = lake.table(table).history(key)
    if form == "json":
        print(json_text(versions))
        return
    if not versions:
        raise click.ClickException(f"{table} never had a row with the key {key}.")
    rows = [
        (
            moment_text(version["commit_timestamp"] or "-"),
            version["operation"],
            version["source"] or "-",
            version["transaction"] or "-",
            difference(version["before"], version["after"]),
        )
        for version in versions
    ]
    print_rows(
        ("visible from", "operation", "source", "transaction", "row"),
        rows,
        form,
        whole=("visible from", "operation"),
    )


def difference(before: dict[str, Any] | None, after: dict[str, Any] | None) -> str:
    """The row, or what changed in it if the row before is known."""
    if after is None or not before:
        return row_text(after or before or {})
    changed = {
        name: (before.get(name), value)
        for name, value in after.items()
        if name in before and before[name] != value
    }
    if not changed:
        return row_text(after)
    return ", ".join(f"{name}: {_text(old)} → {_text(new)}" for name, (old, new) in changed.items())


def row_text(row: dict[str, Any]) -> str:
    return ", ".join(f"{name}={_text(value)}" for name, value in row.items())


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
