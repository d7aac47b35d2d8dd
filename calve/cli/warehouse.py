"""`calve warehouse`: the tenants of this catalog."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from calve.settings import Settings

if TYPE_CHECKING:
    from calve.cli._flags import Subparsers


def add(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("warehouse", help="create, list and drop warehouses", description=__doc__)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    create = actions.add_parser("create", help="make a warehouse")
    create.add_argument("name", metavar="NAME")
    create.add_argument("--root", metavar="LOCATION", help="where its tables lie [beside main]")
    actions.add_parser("list", help="print every warehouse")
    drop = actions.add_parser("drop", help="drop an empty warehouse; its files stay")
    drop.add_argument("name", metavar="NAME")


def run(args: argparse.Namespace, settings: Settings) -> int:
    from calve.opening import open_catalog
    from catalog.service import warehouses

    catalog = open_catalog(settings)
    if args.action == "create":
        made = warehouses.create(catalog, args.name, args.root)
        print(f"{made.name}\t{made.root}")
    elif args.action == "drop":
        warehouses.drop(catalog, args.name)
    else:
        for found in catalog.warehouses.all():
            number = (catalog.present.number(found.name) or (0, 0))[0]
            print(f"{found.name}\t{found.root}\t{number} commits")
    return 0
