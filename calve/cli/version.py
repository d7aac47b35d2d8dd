"""`calve version`: the version of the program."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from calve import __version__
from calve.settings import Settings

if TYPE_CHECKING:
    from calve.cli._flags import Subparsers

READS_SETTINGS = False


def add(subparsers: Subparsers) -> None:
    subparsers.add_parser("version", help="print the version", description=__doc__)


def run(_args: argparse.Namespace, _settings: Settings) -> int:
    print(f"calve {__version__}")
    return 0
