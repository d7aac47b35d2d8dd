"""`calve openapi`: write the descriptions of the API from the code, or check that they are current."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from calve.settings import Settings

if TYPE_CHECKING:
    from calve.cli._flags import Subparsers

READS_SETTINGS = False


def add(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("openapi", help="write or check the API descriptions", description=__doc__)
    parser.add_argument("--directory", type=Path, default=Path("openapi"), help="where they are [openapi]")
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit 1 if a file is not current"
    )


def run(args: argparse.Namespace, _settings: Settings) -> int:
    from calve.app import described_app
    from calve.openapi import check, write

    with tempfile.TemporaryDirectory() as home:
        app = described_app(Settings(home=Path(home)))
    if not args.check:
        write(args.directory, app)
        return 0
    stale = check(args.directory, app)
    for line in stale:
        print(line)
    return 1 if stale else 0
