"""`calve worker`: run a Spark worker against a server. It needs nothing but the server's address, and a token
where the server asks for one.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from calve.settings import Settings

if TYPE_CHECKING:
    from calve.cli._flags import Subparsers


def add(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("worker", help="run a Spark worker", description=__doc__)
    parser.add_argument("--uri", help="address of the server [http://HOST:PORT of the settings]")


def run(args: argparse.Namespace, settings: Settings) -> int:
    from calve.serve.hints import address
    from calve.serve.spark_worker import command, environment

    uri = args.uri or address(settings, settings.port)
    os.environ.update(environment(settings))
    words = command(settings, uri)
    sys.stdout.flush()
    os.execv(words[0], words)  # noqa: S606 - our own interpreter, with our own module
