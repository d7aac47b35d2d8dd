"""`calve serve`: run the server until it is told to stop."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from calve.settings import Settings

if TYPE_CHECKING:
    from calve.cli._flags import Subparsers


def add(subparsers: Subparsers) -> None:
    subparsers.add_parser("serve", help="run the server", description=__doc__)


def run(_args: argparse.Namespace, settings: Settings) -> int:
    from calve.serve.run import serve

    return serve(settings)
