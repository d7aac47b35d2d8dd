"""`calve principal`: works on the database, so that a person who can reach it is the first administrator.

`create` and `rotate` print the secret alone on stdout, for scripts, and how to use it on stderr.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from calve.cli.options import Function, settings_options
from calve.cli.output import flat, format_option, print_rows
from calve.settings import Settings
from catalog.models import EVERY_WAREHOUSE, Role

if TYPE_CHECKING:
    from catalog.identity.principals import PrincipalStore
    from catalog.store.database import Database

ROLES = [str(role) for role in Role]
EVERY = "all"  # the word for "*", which a shell would expand to file names
MAIN = "main"  # exists from the first start of the server
RIGHTS = {
    Role.READER: "list and load tables and views, and read history and past moments",
    Role.WRITER: "do what a reader may, create, change, rename and drop tables and views, and send changes",
    Role.ADMIN: "do what a writer may, and manage the warehouse",
}

_options = settings_options("home", "database")
_name = click.argument("name")


def _warehouse_option(*, required: bool) -> Function:
    default = "" if required else f" [{MAIN}]"
    return click.option(
        "--warehouse", metavar="W", required=required, help=f"A warehouse, or `{EVERY}` of them.{default}"
    )


@click.group()
def command() -> None:
    """Create principals, grant and revoke their roles.

    A principal is a person or a program that may use the catalog of a server that runs with --auth tokens.

    \b
    Roles, each in one warehouse or in all:
      reader   list and load tables and views, read history and past moments
      writer   the same, and create, change, rename and drop them, send changes
      admin    the same, and manage the warehouse

    \b
    Examples:
      calve principal create admin --role admin --warehouse all
      calve principal create ci --role writer
    """


@command.command()
@_name
@click.option("--role", type=click.Choice(ROLES), help="What it may do. [nothing until a role is granted]")
@_warehouse_option(required=False)
@_options
def create(settings: Settings, name: str, role: str | None, warehouse: str | None) -> None:
    """Create a principal and print its secret, this once.

    The secret alone goes to stdout, everything else to stderr: SECRET=$(calve principal create ci) works.

    \b
    Example:
      calve principal create ci --role writer
    """
    if role is None and warehouse is not None:
        raise click.UsageError(f"--warehouse needs --role: {', '.join(ROLES)}.", click.get_current_context())
    roles = {} if role is None else {_stored(warehouse): Role.parse(role)}
    with _principals(settings, may_create=True) as (store, database):
        secret = store.create(name, roles)
        _note_absent(roles, database)
    _print_note(f"Created the principal {name}.")
    for where, granted in roles.items():
        _print_note(f"As {granted} in {_words(where)} it may {RIGHTS[granted]}.")
    if not roles:
        _print_note(f"It has no role yet: calve principal grant {name} --role reader --warehouse {MAIN}")
    _print_secret(name, secret, settings)


@command.command(name="list")
@format_option
@_options
def list_(settings: Settings, form: str | None) -> None:
    """List all principals with their roles.

    \b
    Example:
      calve principal list --format json
    """
    with _principals(settings) as (store, _):
        rows = [
            (found.name, "disabled" if found.disabled else "enabled", _roles(found.roles))
            for found in store.list()
        ]
    print_rows(("name", "state", "roles"), rows, form)


@command.command()
@_name
@click.option("--role", type=click.Choice(ROLES), required=True, help="What it may do.")
@_warehouse_option(required=False)
@_options
def grant(settings: Settings, name: str, role: str, warehouse: str | None) -> None:
    """Grant a role in a warehouse; it replaces the present one there.

    \b
    Example:
      calve principal grant ci --role reader --warehouse all
    """
    where, granted = _stored(warehouse), Role.parse(role)
    with _principals(settings) as (store, database):
        store.grant(name, where, granted)
        _note_absent({where: granted}, database)
    print(f"{name} is {role} in {_words(where)}: it may {RIGHTS[granted]}.")


@command.command()
@_name
@_warehouse_option(required=True)
@_options
def revoke(settings: Settings, name: str, warehouse: str) -> None:
    """Revoke the role in a warehouse.

    \b
    Example:
      calve principal revoke ci --warehouse main
    """
    where = _stored(warehouse)
    with _principals(settings) as (store, _):
        store.revoke(name, where)
        left = next((found.roles for found in store.list() if found.name == name), {})
    print(f"{name} has no role in {_words(where)} any more. Other roles: {flat(_roles(left))}.")


@command.command()
@_name
@_options
def disable(settings: Settings, name: str) -> None:
    """Revoke its tokens and issue no more. Its roles are kept.

    \b
    Example:
      calve principal disable ci
    """
    with _principals(settings) as (store, _):
        store.disable(name)
    print(f"{name} is disabled, and its tokens are revoked.")


@command.command()
@_name
@_options
def enable(settings: Settings, name: str) -> None:
    """Undo `disable`.

    \b
    Example:
      calve principal enable ci
    """
    with _principals(settings) as (store, _):
        store.enable(name)
    print(f"{name} is enabled and can get tokens again.")


@command.command()
@_name
@_options
def rotate(settings: Settings, name: str) -> None:
    """Print a new secret. The old one and its tokens are revoked.

    \b
    Example:
      calve principal rotate ci
    """
    with _principals(settings) as (store, _):
        secret = store.rotate(name)
    _print_secret(name, secret, settings)
    _print_note("The old secret and the tokens from it are revoked.")


@command.command()
@_name
@_options
def delete(settings: Settings, name: str) -> None:
    """Delete it with its roles and tokens.

    \b
    Example:
      calve principal delete ci
    """
    with _principals(settings) as (store, _):
        store.delete(name)
    print(f"{name} is deleted, with its roles and tokens.")


# -- the database --------------------------------------------------------------------------------------------


@contextmanager
def _principals(settings: Settings, *, may_create: bool = False) -> Iterator[tuple[PrincipalStore, Database]]:
    from calve.bootstrap import open_database, require_catalog
    from catalog.identity.principals import PrincipalStore

    if not may_create:
        require_catalog(settings)
    database = open_database(settings)
    try:
        yield PrincipalStore(database), database
    finally:
        database.close()


def _note_absent(roles: Mapping[str, Role], database: Database) -> None:
    """A role may be granted before its warehouse exists, but a misspelt name should be noticed."""
    from catalog.store.warehouses import WarehouseStore

    for warehouse in roles:
        if warehouse not in {EVERY_WAREHOUSE, MAIN} and WarehouseStore(database).get(warehouse) is None:
            _print_note(f"Note: there is no warehouse {warehouse} yet.")


# -- words ---------------------------------------------------------------------------------------------------


def _stored(warehouse: str | None) -> str:
    return EVERY_WAREHOUSE if warehouse == EVERY else warehouse or MAIN


def _words(warehouse: str) -> str:
    return "every warehouse" if warehouse == EVERY_WAREHOUSE else f"the warehouse {warehouse}"


def _roles(roles: Mapping[str, Role]) -> dict[str, str]:
    return {EVERY if where == EVERY_WAREHOUSE else where: str(role) for where, role in roles.items()}


def _print_secret(name: str, secret: str, settings: Settings) -> None:
    from calve.server.banner import address

    uri = address(settings, settings.port)
    tokens = f"{uri}/v1/oauth/tokens"
    _print_note(f"\nThe secret of {name}, shown this once:")
    print(secret, flush=True)
    _print_note(f"""
Set it as SECRET in a client:
  Spark      spark.sql.catalog.lake.credential={name}:SECRET
  PyIceberg  load_catalog("lake", uri="{uri}", credential="{name}:SECRET")
  DuckDB     CREATE SECRET lake (TYPE iceberg, CLIENT_ID '{name}', CLIENT_SECRET 'SECRET',
                                 OAUTH2_SERVER_URI '{tokens}');
  worker     CALVE_WORKER_CREDENTIAL={name}:SECRET calve worker
  curl       curl -u {name}:SECRET -d grant_type=client_credentials {tokens}
             answers a token; send it as `Authorization: Bearer TOKEN`
  calve      export CALVE_TOKEN=TOKEN, with such a token
""")
    if settings.auth == "open":
        _print_note("Note: `auth` is `open` here. A server requires tokens if it runs with --auth tokens.")


def _print_note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
