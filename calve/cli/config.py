"""`calve config`."""

from __future__ import annotations

import click

from calve.cli.options import settings_options
from calve.cli.output import format_option, print_rows
from calve.settings import Settings
from calve.settings_sources import origin


@click.command()
@format_option
@settings_options()
@click.pass_context
def command(ctx: click.Context, settings: Settings, form: str | None) -> None:
    """Print every setting with its value and source.

    A value comes from a flag, else from a variable CALVE_*, else from the TOML file, else from the default.
    Secrets and passwords are masked.

    \b
    Examples:
      calve config
      CALVE_PORT=9000 calve config --format json
    """
    given = {name: value for name, value in ctx.params.items() if value is not None}
    rows = [(name, settings.shown(name), origin(name, given)) for name in Settings.model_fields]
    print_rows(("setting", "value", "source"), rows, form)
