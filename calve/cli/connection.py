"""The options of commands that use the client, and the connection that they give. Needs no server code."""

from __future__ import annotations

import functools
import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from calve.client import connect
from calve.client.times import Moment, moment_parameter
from calve.startup import SettingsError

Function = Callable[..., Any]
DEFAULTS = {"host": "127.0.0.1", "port": "8181"}


def lake_options(function: Function) -> Function:
    """`--uri`, `--token` and `--warehouse`. The command gets the argument `lake`, and closes nothing."""

    @functools.wraps(function)
    def command(uri: str | None, token: str | None, warehouse: str, **arguments: Any) -> Any:
        address = uri or default_uri()
        if not _is_http(address):
            raise click.BadParameter(f"{address} is not an http address.", param_hint="--uri")
        with connect(address, token, warehouse=warehouse) as lake:
            return function(lake=lake, **arguments)

    made: Function = command
    made = click.option(
        "--warehouse", default="main", metavar="NAME", help="The warehouse of tables that name none. [main]"
    )(made)
    made = click.option("--token", envvar="CALVE_TOKEN", metavar="TOKEN", help="Bearer token. [CALVE_TOKEN]")(
        made
    )
    return click.option(
        "--uri",
        envvar="CALVE_URI",
        metavar="URI",
        help="Address of the server. [CALVE_URI, else the local one]",
    )(made)


def default_uri() -> str:
    """Where `calve serve` listens that is started here: by CALVE_* variables, then calve.toml."""
    written = _settings_file()

    def setting(name: str) -> str | None:
        found = os.environ.get(f"CALVE_{name.upper()}") or written.get(name) or DEFAULTS.get(name)
        return None if found is None else str(found)

    if (base_url := setting("base_url")) is not None:
        return base_url
    host = setting("host") or ""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{setting('port')}" if ":" in host else f"http://{host}:{setting('port')}"


def _settings_file() -> dict[str, Any]:
    """The settings in the TOML file, refused in the words of `calve serve`."""
    named = os.environ.get("CALVE_CONFIG")
    path = Path(named or "calve.toml")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if not named:
            return {}
        raise SettingsError(f"the configuration file {path} does not exist.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise SettingsError(f"{path} is not valid TOML: {problem}.") from None


def _is_http(address: str) -> bool:
    try:
        parts = urlsplit(address)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of the port
        return False


class MomentType(click.ParamType[Moment | None]):
    """A time, a number of a commit, or words such as "1 minute ago"."""

    name = "moment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Moment | None:
        try:
            return moment_parameter(value)
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)


def as_of_option(words: str = "Read the tables as they were then.") -> Callable[[Function], Function]:
    return click.option(
        "--as-of",
        type=MomentType(),
        metavar="MOMENT",
        help=f'{words} A time, the number of a commit, or "5 minutes ago", "yesterday". [now]',
    )
