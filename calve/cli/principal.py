"""`calve principal`: who may use the catalog when it asks for tokens.

Works on the database, so whoever can reach that is the first administrator: the server has no open door for
it. `create` and `rotate` print the secret alone on stdout, for scripts, and how to use it on stderr.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from calve.settings import Settings
from calve.startup import StartupError
from catalog.identity.roles import EVERY_WAREHOUSE, Role

if TYPE_CHECKING:
    from calve.cli._flags import Subparsers
    from catalog.identity.principals import PrincipalStore
    from catalog.identity.records import Principal
    from catalog.store.database import Database

ROLES = [str(role) for role in Role]
EVERY = "all"  # the word for "*", which a shell would take for file names
MAIN = "main"  # there from the first start of the server on


def add(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "principal", help="create principals, give them roles, take them back", description=__doc__
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    actions.add_parser("list", help="print every principal with its roles")
    create = _named(actions, "create", "create a principal and print its secret, this once")
    create.add_argument("--role", choices=ROLES, help="what it may do [nothing until it is granted a role]")
    _add_warehouse(create, required=False)
    grant = _named(actions, "grant", "give a role in a warehouse, in place of the present one there")
    grant.add_argument("--role", choices=ROLES, required=True)
    _add_warehouse(grant, required=False)
    _add_warehouse(_named(actions, "revoke", "take the role in a warehouse away"), required=True)
    _named(actions, "disable", "end its tokens and issue no more; its roles are kept")
    _named(actions, "enable", "undo disable")
    _named(actions, "rotate", "print a new secret; the old one and the tokens from it are over")
    _named(actions, "delete", "delete it with its roles and tokens")


def run(args: argparse.Namespace, settings: Settings) -> int:
    from catalog.identity.principals import PrincipalStore

    with _opened(settings, may_begin=args.action == "create") as database:
        _ACTIONS[args.action](PrincipalStore(database), args, settings)
        if getattr(args, "role", None) is not None:
            _note_absent(_warehouse(args.warehouse), database)
    return 0


def _named(actions: Subparsers, action: str, words: str) -> argparse.ArgumentParser:
    parser = actions.add_parser(action, help=words, description=words[0].upper() + words[1:] + ".")
    parser.add_argument("name", metavar="NAME", help="1 to 63 letters, digits, '.', '_', '@' or '-'")
    return parser


def _add_warehouse(parser: argparse.ArgumentParser, *, required: bool) -> None:
    default = "" if required else f" [{MAIN}]"
    parser.add_argument(
        "--warehouse", metavar="W", required=required, help=f"a warehouse, or '{EVERY}' of them{default}"
    )


# -- the actions ---------------------------------------------------------------------------------------------


def _create(store: PrincipalStore, args: argparse.Namespace, settings: Settings) -> None:
    if args.role is None and args.warehouse is not None:
        raise StartupError(f"--warehouse says where, so --role has to say what: {', '.join(ROLES)}.")
    roles = {} if args.role is None else {_warehouse(args.warehouse): Role.parse(args.role)}
    _show_secret(args.name, store.create(args.name, roles), settings)
    if not roles:
        _say(f"It has no role yet: calve principal grant {args.name} --role reader --warehouse {MAIN}")


def _list(store: PrincipalStore, _args: argparse.Namespace, _settings: Settings) -> None:
    rows = [("NAME", "STATE", "ROLES")]
    rows += [
        (principal.name, "disabled" if principal.disabled else "enabled", _roles(principal))
        for principal in store.list()
    ]
    width = max(len(name) for name, _, _ in rows)
    for name, state, roles in rows:
        print(f"{name:{width}}  {state:8}  {roles}")


def _grant(store: PrincipalStore, args: argparse.Namespace, _settings: Settings) -> None:
    warehouse = _warehouse(args.warehouse)
    store.grant(args.name, warehouse, Role.parse(args.role))
    print(f"{args.name} is {args.role} in {_words(warehouse)}.")


def _revoke(store: PrincipalStore, args: argparse.Namespace, _settings: Settings) -> None:
    warehouse = _warehouse(args.warehouse)
    store.revoke(args.name, warehouse)
    left = next((_roles(principal) for principal in store.list() if principal.name == args.name), "none")
    print(f"{args.name} has lost its role in {_words(warehouse)}. Roles left: {left}.")


def _disable(store: PrincipalStore, args: argparse.Namespace, _settings: Settings) -> None:
    store.disable(args.name)
    print(f"{args.name} is disabled, and its tokens are over.")


def _enable(store: PrincipalStore, args: argparse.Namespace, _settings: Settings) -> None:
    store.enable(args.name)
    print(f"{args.name} is enabled and can ask for tokens again.")


def _rotate(store: PrincipalStore, args: argparse.Namespace, settings: Settings) -> None:
    _show_secret(args.name, store.rotate(args.name), settings)
    _say("The old secret and the tokens from it are over.")


def _delete(store: PrincipalStore, args: argparse.Namespace, _settings: Settings) -> None:
    store.delete(args.name)
    print(f"{args.name} is deleted, with its roles and tokens.")


_ACTIONS: dict[str, Callable[[PrincipalStore, argparse.Namespace, Settings], None]] = {
    "create": _create,
    "list": _list,
    "grant": _grant,
    "revoke": _revoke,
    "disable": _disable,
    "enable": _enable,
    "rotate": _rotate,
    "delete": _delete,
}


# -- the database --------------------------------------------------------------------------------------------


@contextmanager
def _opened(settings: Settings, *, may_begin: bool) -> Iterator[Database]:
    from calve.opening import open_database

    _check_file(settings, may_begin)
    database = open_database(settings)
    try:
        yield database
    finally:
        database.close()


def _check_file(settings: Settings, may_begin: bool) -> None:
    """SQLite makes a file for whoever asks, but a mistyped folder must not look like an empty catalog."""
    file = settings.database.removeprefix("sqlite:///")
    if not may_begin and file != settings.database and not Path(file).exists():
        raise StartupError(f"there is no catalog at {file}: is --home right?")


def _note_absent(warehouse: str, database: Database) -> None:
    """A role may be given ahead of its warehouse, but a misspelt one should not go unnoticed."""
    from catalog.store.warehouses import WarehouseStore

    if warehouse not in {EVERY_WAREHOUSE, MAIN} and WarehouseStore(database).get(warehouse) is None:
        _say(f"Note: there is no warehouse {warehouse} yet.")


# -- words ---------------------------------------------------------------------------------------------------


def _warehouse(word: str | None) -> str:
    return EVERY_WAREHOUSE if word == EVERY else word or MAIN


def _words(warehouse: str) -> str:
    return "every warehouse" if warehouse == EVERY_WAREHOUSE else warehouse


def _roles(principal: Principal) -> str:
    return ", ".join(f"{role} in {_words(where)}" for where, role in principal.roles.items()) or "none"


def _show_secret(name: str, secret: str, settings: Settings) -> None:
    url = settings.base_url or f"http://{settings.host}:{settings.port}"
    tokens = f"{url}/v1/oauth/tokens"
    _say(f"The secret of {name}, shown this once:")
    print(secret, flush=True)
    _say(f"""
Use it as SECRET in:
  curl       curl -u {name}:SECRET -d grant_type=client_credentials {tokens}
  Spark      spark.sql.catalog.lake.credential={name}:SECRET
  PyIceberg  load_catalog("lake", uri="{url}", credential="{name}:SECRET")
  DuckDB     CREATE SECRET lake (TYPE iceberg, CLIENT_ID '{name}', CLIENT_SECRET 'SECRET',
                                 OAUTH2_SERVER_URI '{tokens}');
""")
    if settings.auth == "open":
        _say("Note: auth is `open` here; a server asks for tokens when it runs with --auth tokens.")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
