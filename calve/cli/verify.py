"""`calve verify`."""

from __future__ import annotations

import re
import sys
import time
from typing import Any

import click

from calve.cli.connection import lake_options
from calve.cli.output import json_text, tell_wait
from calve.client import Lake
from calve.errors import CalveError
from calve.verification.columns import Dialect
from calve.verification.comparison import Report, Tables, compare
from calve.verification.lake_table import LakeTable
from calve.verification.mysql import MySqlSource
from calve.verification.postgresql import PostgresSource, SourceFailed

DIFFERS, NOT_COMPARED = 1, 2
SHOWN_MAX = 20
PAUSE_S = 0.5
_PART = re.compile(r'"((?:[^"]|"")+)"|([^."]+)')


@click.command()
@click.argument("tables", nargs=-1, required=True, metavar="TABLE...")
@click.option(
    "--source",
    metavar="ADDRESS",
    help="Compare with this source: postgresql://user@host/database, or mysql://…",
)
@click.option("--source-table", metavar="NAME", help="The name of the table at the source. [TABLE]")
@click.option(
    "--sql", "dialect", type=click.Choice(["postgresql", "mysql"]), help="Print SQL for the source, and end."
)
@click.option(
    "--wait",
    "wait_s",
    type=float,
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long the lake may need to reach the source, or a worker to verify.",
)
@click.option("--json", "is_json", is_flag=True, help="Print JSON. [the default if stdout is no terminal]")
@lake_options
def command(
    lake: Lake,
    tables: tuple[str, ...],
    source: str | None,
    source_table: str | None,
    dialect: str | None,
    wait_s: float,
    is_json: bool,
) -> None:
    """Compare tables with their changes, or with their source.

    Without an option, a worker compares each mirror with the fold of its changes table. With `--source`, each
    is compared with the table of a live PostgreSQL, pinned to a position of its log, or with the table of a
    live MySQL or MariaDB. Nothing is repaired.

    The exit code is 0 if all are equal, 1 if one differs, 2 if one cannot be compared.

    \b
    Examples:
      calve verify shop.orders
      calve verify --source postgresql://reader@db/shop shop.orders shop.customers
      calve verify --source postgresql://reader@db/shop --source-table public.orders shop.orders
      calve verify --source mysql://reader@db/shop shop.orders
      calve verify --sql postgresql shop.orders
    """
    if source_table is not None and len(tables) > 1:
        raise click.UsageError("--source-table names the table of one TABLE")
    try:
        if dialect is not None:
            for table in tables:
                print(_sql(lake, table, source_table or table, dialect))
            return
        if source is None:
            found = [_verified(lake, table, wait_s) for table in tables]
        else:
            found = [
                _compared(lake, table, source, source_table or table, wait_s).as_json() for table in tables
            ]
    except CalveError as error:
        click.echo(f"calve: {error.message}", err=True)
        sys.exit(NOT_COMPARED)
    if is_json or not sys.stdout.isatty():
        print(json_text(found if len(found) > 1 else found[0]))
    else:
        for one in found:
            click.echo(_page(one))
    states = {one["state"] for one in found}
    sys.exit(DIFFERS if "differs" in states else 0 if states == {"equal"} else NOT_COMPARED)


# -- by a worker


def _verified(lake: Lake, table: str, wait_s: float) -> dict[str, Any]:
    found = lake.table(table).verify()
    tell_wait(f"Waiting at most {wait_s:g} s until a worker has verified {table}.")
    until_s = time.monotonic() + wait_s
    while found["state"] in ("requested", "running") and time.monotonic() < until_s:
        time.sleep(PAUSE_S)
        found = lake.table(table).verification()
    return {"table": table, **found}


# -- with a source


def _source_of(address: str) -> tuple[PostgresSource | MySqlSource, Dialect]:
    scheme = address.partition("://")[0]
    if scheme in ("mysql", "mariadb"):
        return MySqlSource(address), "mysql"
    if scheme in ("postgresql", "postgres") or "=" in address:  # libpq also knows `host=… dbname=…`
        return PostgresSource(address), "postgresql"
    raise SourceFailed(
        "--source is an address as postgresql://user@host/database or mysql://user@host/database"
    )


def _compared(lake: Lake, table: str, source: str, source_table: str, wait_s: float) -> Report:
    here = LakeTable.load(lake, table)
    database, dialect = _source_of(source)
    columns, left_out = here.matched(database.columns(source_table), dialect)
    report = Report(table, source_table, columns=[column.name for column in columns], not_compared=left_out)
    tables = Tables(
        database.snapshot,
        here.now,
        here.watermarks,
        here.statements(dialect, _parts(source_table), columns),
        here.statements("duckdb", here.parts, columns),
    )
    compare(tables, report, wait_s)
    if report.state == "differs":
        report.mend = f"calve verify {table}; if that is equal, load the table again: POST …/resync"
    return report


def _sql(lake: Lake, table: str, source_table: str, dialect: str) -> str:
    here = LakeTable.load(lake, table)
    kind: Any = dialect
    columns, left_out = here.comparable(kind)
    statement = here.statements(kind, _parts(source_table), columns).buckets()
    lines = [f"-- columns: {', '.join(column.name for column in columns)}"]
    lines += [f"-- not compared: {name}: {reason}" for name, reason in left_out.items()]
    lines += ["-- the session must be in UTC: SET time_zone = '+00:00'"] if dialect == "mysql" else []
    return "\n".join([*lines, statement + ";"])


def _parts(name: str) -> list[str]:
    """`public."Orders"` as its parts."""
    return [(quoted or plain).replace('""', '"') for quoted, plain in _PART.findall(name)]


# -- output


def _page(one: dict[str, Any]) -> str:
    lines = [f"{one['table']}: {one['state']}"]
    if one.get("reason"):
        lines.append(f"  {one['reason']}")
    if "source-table" in one:
        passed = "passed" if one["is-passed"] else "not known to be passed"
        position = f" at {one['position']}" if one["position"] else ""
        lines.append(f"  {one['rows']} rows{position} of the source ({passed}), number {one['number']}")
        if one["unsettled"]:
            lines.append(f"  {one['unsettled']} rows kept changing and were not judged")
    elif one.get("checked"):
        lines.append(f"  {one['checked'].get('rows', 0)} rows at number {one['checked'].get('number')}")
    for key in one.get("keys", [])[:SHOWN_MAX]:
        values = ", ".join(f"{name}={value}" for name, value in key["key"].items())
        columns = f": {', '.join(key['columns'])}" if key["columns"] else ""
        lines.append(f"  {key['kind']} {values}{columns}")
    for name, reason in (one.get("not-compared") or {}).items():
        lines.append(f"  not compared: {name}: {reason}")
    mend = one.get("mend")
    if mend:
        lines.append(f"  to mend it: {mend if isinstance(mend, str) else mend['request']}")
    return "\n".join(lines)
