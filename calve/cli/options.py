"""Options that several commands have: settings, and the server to talk to."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from calve.settings import Settings
from calve.settings_sources import choices, default_text, flag, kind_of

Function = Callable[..., Any]


def settings_options(*names: str, **short: str) -> Callable[[Function], Function]:
    """`--config` and an option for each named setting, for all if none is named.

    `short` gives a setting a second, shorter option. The command gets the argument `settings`, read from
    these options and all other sources.
    """
    chosen = ["config", *names] if names else list(Settings.model_fields)

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def command(**arguments: Any) -> Any:
            flags = {name: arguments.pop(name) for name in chosen}
            given = {name: value for name, value in flags.items() if value is not None}
            return function(settings=Settings(**given), **arguments)

        decorated: Function = command
        for name in reversed(chosen):
            decorated = _option(name, *([short[name]] if name in short else []))(decorated)
        return decorated

    return decorate


def _option(name: str, *short: str) -> Callable[[Function], Function]:
    field = Settings.model_fields[name]
    default = default_text(field)
    words = f"{field.description} [{default}]" if default else field.description
    if kind_of(field) is bool:
        return click.option(f"{flag(name)}/--no-{flag(name)[2:]}", name, default=None, help=words)
    kind = click.Choice(choices(field)) if choices(field) else kind_of(field)
    metavar = None if choices(field) else name.removesuffix("_max").rsplit("_", 1)[-1].upper()
    return click.option(flag(name), *short, name, type=kind, metavar=metavar, help=words)


def server_options(function: Function) -> Function:
    """`--uri` and `--token` of the server that the command talks to."""
    token = click.option(
        "--token", metavar="TOKEN", envvar="CALVE_TOKEN", help="Bearer token, if the server requires one."
    )
    return uri_option(token(function))


uri_option = click.option(
    "--uri",
    metavar="URI",
    envvar="CALVE_URI",
    help="Address of the server. [http://HOST:PORT of the settings]",
)
