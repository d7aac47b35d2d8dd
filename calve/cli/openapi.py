"""`calve openapi`."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from calve.settings import ExplicitSettings


@click.command()
@click.option(
    "--directory",
    type=click.Path(path_type=Path),
    default=Path("openapi"),
    help="Where the files are. [openapi]",
)
@click.option("--check", is_flag=True, help="Change nothing; exit with 1 if a file is not current.")
def command(directory: Path, check: bool) -> int:
    """Write or check the descriptions of the API.

    \b
    Examples:
      calve openapi
      calve openapi --check
    """
    from calve import openapi
    from calve.app import fastapi_app

    with tempfile.TemporaryDirectory() as home:
        app = fastapi_app(ExplicitSettings(home=Path(home)))
    if not check:
        openapi.write(directory, app)
        return 0
    stale = openapi.check(directory, app)
    for line in stale:
        print(line)
    return 1 if stale else 0
