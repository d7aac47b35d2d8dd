"""`calve dead-letters`: the dead letters of a running server."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import quote

import click

from calve.cli.options import Function, server_options, settings_options
from calve.cli.output import format_option, print_rows
from calve.settings import Settings

if TYPE_CHECKING:
    import httpx


@click.group()
def command() -> None:
    """Show, fix, replay and drop events that could not land.

    A dead letter is an event that does not fit its table. The server keeps it until it is replayed or
    dropped.

    \b
    Examples:
      calve dead-letters reasons
      calve dead-letters list --table shop.orders
      calve dead-letters show 01HF… > event.json
      calve dead-letters fix 01HF… event.json
      calve dead-letters replay
    """


def _options(function: Function) -> Function:
    warehouse = click.option("--warehouse", default="main", metavar="W", help="The warehouse. [main]")
    return server_options(warehouse(settings_options("host", "port")(function)))


_table = click.option("--table", metavar="NAMESPACE.NAME", help="Only those of this table.")
_state = click.option(
    "--state", type=click.Choice(["open", "fixed", "replayed", "dropped"]), help="Only this state."
)


@command.command(name="list")
@_table
@_state
@format_option
@_options
def list_(form: str | None, table: str | None, state: str | None, **server: Any) -> None:
    """List dead letters in the order in which they came.

    \b
    Example:
      calve dead-letters list --state open --format json
    """
    wanted = {"table": table, "state": state, "pageSize": "1000"}
    with _letters(**server) as letters:
        found = list(letters.all({name: value for name, value in wanted.items() if value}))
    rows = [
        (letter["id"], letter["state"], ".".join(letter["table"]), letter["code"], letter["reason"])
        for letter in found
    ]
    print_rows(("id", "state", "table", "code", "reason"), rows, form)


@command.command()
@_table
@_state
@format_option
@_options
def reasons(form: str | None, table: str | None, state: str | None, **server: Any) -> None:
    """Count dead letters by their reason, the most frequent first, with the id of one example.

    \b
    Example:
      calve dead-letters reasons --state open
    """
    wanted = {"table": table, "state": state, "pageSize": "1000"}
    with _letters(**server) as letters:
        found = letters.reasons({name: value for name, value in wanted.items() if value})
    rows = [
        (one["count"], one["waiting"], ".".join(one["table"]), one["source"], one["reason"], one["example"])
        for one in found
    ]
    print_rows(("count", "waiting", "table", "source", "reason", "example"), rows, form)


@command.command()
@click.argument("id_", metavar="ID")
@_options
def show(id_: str, **server: Any) -> None:
    """Print one dead letter as JSON, with the event as it came.

    \b
    Example:
      calve dead-letters show 01HF…
    """
    with _letters(**server) as letters:
        print(json.dumps(letters.call("GET", id_), indent=2, ensure_ascii=False))


@command.command()
@click.argument("id_", metavar="ID")
@click.argument("file", type=click.File(encoding="utf-8"))
@_options
def fix(id_: str, file: IO[str], **server: Any) -> None:
    """Set the event that a replay sends instead; FILE holds it as JSON, `-` reads stdin.

    \b
    Example:
      calve dead-letters fix 01HF… event.json
    """
    try:
        event = json.load(file)
    except ValueError as error:
        raise click.BadParameter(f"{file.name} is not JSON: {error}", param_hint="FILE") from None
    with _letters(**server) as letters:
        letters.call("PUT", id_, {"event": event})
    print(f"{id_} is fixed. Send it with: calve dead-letters replay {id_}")


@command.command()
@click.argument("id_", metavar="ID")
@_options
def drop(id_: str, **server: Any) -> None:
    """Drop one dead letter: its event will not land.

    \b
    Example:
      calve dead-letters drop 01HF…
    """
    with _letters(**server) as letters:
        letters.call("DELETE", id_)
    print(f"{id_} is dropped.")


@command.command()
@click.argument("ids", metavar="[ID]...", nargs=-1)
@_table
@_options
def replay(ids: tuple[str, ...], table: str | None, **server: Any) -> None:
    """Send dead letters again, in the order in which they came: those named, else all that are open.

    \b
    Example:
      calve dead-letters replay --table shop.orders
    """
    body: dict[str, Any] = {"ids": list(ids)} if ids else {}
    if table and not ids:
        body["table"] = table.split(".")
    with _letters(**server) as letters:
        replayed = letters.call("POST", "replay", body)["replayed"]
    print(f"{replayed} changes are sent again.")


class _Letters:
    """The dead letters of one warehouse, over HTTP."""

    def __init__(self, client: httpx.Client, url: str) -> None:
        self._client = client
        self._url = url

    def call(self, method: str, path: str, body: Any = None) -> Any:
        url = f"{self._url}/{quote(path, safe='')}"
        response = self._client.request(method, url, json=body).raise_for_status()
        return response.json() if response.content else None

    def reasons(self, parameters: dict[str, str]) -> list[dict[str, Any]]:
        given = {**parameters, "group": "reason"}
        found: list[dict[str, Any]] = (
            self._client.get(self._url, params=given).raise_for_status().json()["reasons"]
        )
        return found

    def all(self, parameters: dict[str, str]) -> Iterator[dict[str, Any]]:
        while True:
            page = self._client.get(self._url, params=parameters).raise_for_status().json()
            yield from page["dead-letters"]
            if not page.get("next-page-token"):
                return
            parameters["pageToken"] = page["next-page-token"]


@contextlib.contextmanager
def _letters(settings: Settings, uri: str | None, token: str | None, warehouse: str) -> Iterator[_Letters]:
    import httpx

    from calve.server.banner import address

    base = (uri or address(settings, settings.port)).rstrip("/")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    url = f"{base}/lake/v1/{quote(warehouse, safe='')}/dead-letters"
    try:
        with httpx.Client(headers=headers, timeout=60) as client:
            yield _Letters(client, url)
    except httpx.HTTPStatusError as error:
        raise click.ClickException(_reason(error.response)) from error
    except httpx.HTTPError as error:
        raise click.ClickException(f"No server answers at {base}. Start one with `calve serve`.") from error


def _reason(response: httpx.Response) -> str:
    try:
        return str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"the server answered {response.status_code}"
