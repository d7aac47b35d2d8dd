"""`calve demo`."""

from __future__ import annotations

import click

from calve.cli.options import server_options, settings_options
from calve.settings import Settings


@click.command()
@server_options
@click.option("--rate", type=click.IntRange(1), default=200, metavar="N", help="Changes in one second. [200]")
@click.option("--seconds", type=click.FloatRange(0), metavar="S", help="End after this time. [never]")
@settings_options("host", "port")
def command(settings: Settings, uri: str | None, token: str | None, rate: int, seconds: float | None) -> int:
    """Send changes to a server and show how they become rows.

    A small shop: orders are placed, paid and cancelled; money moves between accounts in transactions. Ctrl-C
    ends it.

    \b
    Examples:
      calve demo
      calve demo --rate 1000 --seconds 60
    """
    from calve.demo import run_demo
    from calve.server.banner import address

    return run_demo(
        (uri or address(settings, settings.port)).rstrip("/"),
        token=token,
        rate_per_s=rate,
        duration_s=seconds,
    )
