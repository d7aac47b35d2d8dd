"""`calve serve`."""

from __future__ import annotations

import click

from calve.cli.options import settings_options
from calve.settings import Settings


@click.command(epilog="Each option is also a variable (CALVE_PORT) and a name in calve.toml (port).")
@settings_options()
def command(settings: Settings) -> int:
    """Run the server.

    Without options it serves on http://127.0.0.1:8181, keeps everything below ./lake and starts a Spark
    worker. SIGTERM or Ctrl-C stops it after the requests in flight.

    \b
    Examples:
      calve serve
      calve serve --auth tokens --host 0.0.0.0 \\
        --database postgresql://calve@db/calve --warehouse-root s3://bucket/lake
    """
    from calve.server.run import serve

    return serve(settings)
