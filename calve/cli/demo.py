"""`calve demo`: send the changes of a small shop, and watch them become rows. Ctrl-C ends it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from calve.settings import Settings

if TYPE_CHECKING:
    from calve.cli._flags import Subparsers


def add(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("demo", help="send changes and watch them land", description=__doc__)
    parser.add_argument("--uri", help="address of the server [http://HOST:PORT of the settings]")
    parser.add_argument("--rate", type=int, default=200, metavar="N", help="changes in one second [200]")
    parser.add_argument("--seconds", type=float, metavar="S", help="end after so many seconds [never]")
    parser.add_argument("--token", help="bearer token, where the server requires one")


def run(args: argparse.Namespace, settings: Settings) -> int:
    from calve.demo import run_demo
    from calve.serve.hints import address

    uri = args.uri or address(settings, settings.port)
    return run_demo(uri, token=args.token, rate_per_s=max(1, args.rate), duration_s=args.seconds)
