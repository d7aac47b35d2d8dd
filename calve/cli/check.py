"""`calve check`: compare every row with its metadata file and with what must hold of a document."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from calve.settings import Settings

if TYPE_CHECKING:
    from calve.cli._flags import Subparsers


def add(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("check", help="compare rows, files and documents", description=__doc__)
    parser.add_argument(
        "--repair", action="store_true", help="write a missing metadata file again from its row"
    )


def run(args: argparse.Namespace, settings: Settings) -> int:
    from calve.opening import open_catalog
    from catalog.service.checks import check

    catalog = open_catalog(settings)
    checked, problems = 0, 0
    for finding in check(catalog, repair=args.repair):
        checked += 1
        for problem in finding.problems:
            problems += 1
            print(f"{finding.warehouse}: {finding.name}: {problem}")
        if finding.repaired:
            print(f"{finding.warehouse}: {finding.name}: wrote {finding.repaired} again")
    print(f"{checked} entries checked, {problems} problems")
    return 1 if problems else 0
