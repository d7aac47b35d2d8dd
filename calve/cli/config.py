"""`calve config`: every setting with its value and where the value came from; secrets are masked."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from calve.settings import Settings

if TYPE_CHECKING:
    from calve.cli._flags import Subparsers


def add(subparsers: Subparsers) -> None:
    subparsers.add_parser(
        "config", help="print every setting, its value and where it came from", description=__doc__
    )


def run(args: argparse.Namespace, settings: Settings) -> int:
    shown = [(row.name, settings.shown(row.name), args.sources[row.name]) for row in Settings.rows()]
    name_width = max(len(name) for name, _, _ in shown)
    value_width = min(60, max(len(value) for _, value, _ in shown))
    for name, value, source in shown:
        print(f"{name:{name_width}}  {value:{value_width}}  {source}")
    return 0
