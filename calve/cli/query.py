"""`calve query`."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

import click

from calve.cli.connection import as_of_option, lake_options
from calve.cli.output import duration_text, flat, json_or_text, moment_text
from calve.client import Lake
from calve.client.times import Moment
from calve.errors import QueryFailed

FORMATS = ("table", "csv", "json", "ndjson", "arrow")
_NAMED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


@click.command()
@click.argument("sql")
@as_of_option()
@click.option(
    "--param",
    "params",
    multiple=True,
    metavar="[NAME=]VALUE",
    help="A value for $NAME, or for the next ?. JSON if it can be, else text. Repeat it.",
)
@click.option(
    "--consistency",
    metavar="LEVEL",
    help="committed, fresh (wait for all that is acknowledged) or at_least:TOKEN. [committed]",
)
@click.option("--namespace", metavar="NAME", help="The namespace of tables that name none.")
@click.option(
    "--format", "form", type=click.Choice(FORMATS), help="How to print. [table on a terminal, else csv]"
)
@lake_options
def command(
    lake: Lake,
    sql: str,
    as_of: Moment | None,
    params: tuple[str, ...],
    consistency: str | None,
    namespace: str | None,
    form: str | None,
) -> None:
    """Run SQL on the tables of the lake, as of any moment.

    SQL is one SELECT in DuckDB's dialect; `-` reads it from stdin. Below the table, it prints the moment that
    was read, how much is not visible yet, and how long the query took.

    \b
    Examples:
      calve query "SELECT status, count(*) FROM shop.orders GROUP BY 1"
      calve query "SELECT count(*) FROM shop.orders" --as-of "1 minute ago"
      calve query 'SELECT * FROM shop.orders WHERE id = $id' --param id=17 --format json
      calve query "SELECT * FROM shop.orders" --format csv > orders.csv
    """
    form = form or ("table" if sys.stdout.isatty() else "csv")
    pieces = lake.stream(
        sys.stdin.read() if sql == "-" else sql,
        parameters(params),
        format="compact" if form == "table" else form,
        as_of=as_of,
        consistency=consistency,
        namespace=namespace,
    )
    if form == "table":
        print_table(whole(pieces))
    elif form == "json":
        print(json.dumps(whole(pieces), ensure_ascii=False, indent=2))
    elif form == "ndjson":
        for line in without_summary(pieces):
            sys.stdout.buffer.write(line)
    else:
        for piece in pieces:
            sys.stdout.buffer.write(piece)
    sys.stdout.flush()


def parameters(given: Sequence[str]) -> dict[str, Any] | list[Any] | None:
    """Named ones as a dict, others as a list."""
    named = [_NAMED.fullmatch(text) for text in given]
    if any(named) and not all(named):
        raise click.BadParameter("give all parameters names, or none.", param_hint="--param")
    if any(named):
        return {found[1]: json_or_text(found[2]) for found in named if found is not None}
    return [json_or_text(text) for text in given] or None


def whole(pieces: Iterable[bytes]) -> dict[str, Any]:
    """The JSON document. QueryFailed if it broke off."""
    found: dict[str, Any] = json.loads(b"".join(pieces))
    _require_no_error(found)
    return found


def without_summary(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The lines that are rows: not the last one, which is the summary or an error."""
    held, rest = b"", b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if held:
                yield held
            held = line + b"\n"
    if held:
        _require_no_error(json.loads(held))


def _require_no_error(found: dict[str, Any]) -> None:
    if isinstance(error := found.get("error"), dict) and "message" in error:
        raise QueryFailed(error["message"], status=error.get("code"), type=error.get("type", ""))


def print_table(answer: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in answer["columns"]:
        is_number = column["type"].startswith(("BIGINT", "INT", "DECIMAL", "DOUBLE", "FLOAT", "HUGEINT"))
        table.add_column(Text(column["name"]), justify="right" if is_number else "left", overflow="fold")
    for row in answer["rows"]:
        table.add_row(*(Text("null", style="dim") if cell is None else Text(cell_text(cell)) for cell in row))
    console = Console(highlight=False)
    console.print(table)
    console.print(Text(f"\n{footer(answer)}", style="dim"), soft_wrap=True)


def cell_text(cell: Any) -> str:
    if isinstance(cell, bool):
        return "true" if cell else "false"
    return flat(cell if isinstance(cell, str) else json.dumps(cell, ensure_ascii=False))


def footer(answer: dict[str, Any]) -> str:
    """The moment, how old the data is, how long it took."""
    as_of, count = answer["as_of"], answer["rowCount"]
    rows = "1 row" if count == 1 else f"{count:,} rows"
    moment = f"as of {moment_text(as_of['time'])} (commit {as_of['number']}{_age(as_of)})"
    behind = answer["freshness_ms"]
    complete = (
        f"changes of the last {duration_text(behind)} are not in it" if behind else "nothing is pending"
    )
    return f"{rows}, {moment}, {complete}, {duration_text(answer['elapsed_ms'])}"


def _age(as_of: dict[str, Any]) -> str:
    if as_of.get("commit_time") is None:
        return ""
    age = datetime.fromisoformat(as_of["time"]) - datetime.fromisoformat(as_of["commit_time"])
    return f", {duration_text(max(0.0, age.total_seconds() * 1000))} old"
