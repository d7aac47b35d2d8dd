"""`calve dead-letters`: what could not land, why, and the way back. Speaks to a running server."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from calve.settings import Settings

if TYPE_CHECKING:
    import httpx

    from calve.cli._flags import Subparsers


def add(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("dead-letters", help="events that could not land", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    found = _action(actions, "list", "list them, in the order they came")
    found.add_argument("--table", metavar="NAMESPACE.NAME", help="only of this table")
    found.add_argument("--state", choices=("open", "fixed", "replayed", "dropped"), help="only in this state")
    show = _action(actions, "show", "show one with what came in")
    show.add_argument("id", metavar="ID")
    fix = _action(actions, "fix", "set what a replay sends instead")
    fix.add_argument("id", metavar="ID")
    fix.add_argument("file", metavar="FILE", help="the event as it should have been, as JSON; - reads stdin")
    drop = _action(actions, "drop", "give one up")
    drop.add_argument("id", metavar="ID")
    replay = _action(actions, "replay", "send them again, in the order they came")
    replay.add_argument("ids", metavar="ID", nargs="*", help="only these; else all that wait")
    replay.add_argument("--table", metavar="NAMESPACE.NAME", help="only of this table")


def _action(actions: Any, name: str, words: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=words, description=words.capitalize() + "."
    )
    parser.add_argument("--uri", help="address of the server [http://HOST:PORT of the settings]")
    parser.add_argument("--token", help="bearer token, where the server asks for one")
    parser.add_argument("--warehouse", default="main", metavar="W", help="the warehouse [main]")
    return parser


def run(args: argparse.Namespace, settings: Settings) -> int:
    import httpx

    from calve.serve.hints import address

    uri = (args.uri or address(settings, settings.port)).rstrip("/")
    headers = {"Authorization": f"Bearer {args.token}"} if args.token else {}
    base = f"{uri}/lake/v1/{quote(args.warehouse, safe='')}/dead-letters"
    try:
        with httpx.Client(headers=headers, timeout=60) as client:
            _ACTIONS[args.action](client, base, args)
    except httpx.HTTPStatusError as error:
        print(_reason(error.response), file=sys.stderr)
        return 2
    except httpx.HTTPError:
        print(f"No server answers at {uri}. Start one with `calve serve`.", file=sys.stderr)
        return 2
    return 0


def _list(client: httpx.Client, base: str, args: argparse.Namespace) -> None:
    for letter in _all(client, base, args):
        table = ".".join(letter["table"])
        print(f"{letter['id']}  {letter['state']:8}  {table}  {letter['code']}: {letter['reason']}")


def _all(client: httpx.Client, base: str, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    wanted = {"table": args.table, "state": args.state, "pageSize": "1000"}
    params = {name: value for name, value in wanted.items() if value}
    while True:
        page = _ok(client.get(base, params=params))
        yield from page["dead-letters"]
        if not page.get("next-page-token"):
            return
        params["pageToken"] = page["next-page-token"]


def _show(client: httpx.Client, base: str, args: argparse.Namespace) -> None:
    print(json.dumps(_ok(client.get(f"{base}/{quote(args.id, safe='')}")), indent=2, ensure_ascii=False))


def _fix(client: httpx.Client, base: str, args: argparse.Namespace) -> None:
    text = sys.stdin.read() if args.file == "-" else Path(args.file).read_text(encoding="utf-8")
    _ok(client.put(f"{base}/{quote(args.id, safe='')}", json={"event": json.loads(text)}))
    print(f"{args.id} is fixed. Send it with: calve dead-letters replay {args.id}")


def _drop(client: httpx.Client, base: str, args: argparse.Namespace) -> None:
    client.delete(f"{base}/{quote(args.id, safe='')}").raise_for_status()
    print(f"{args.id} is given up.")


def _replay(client: httpx.Client, base: str, args: argparse.Namespace) -> None:
    body: dict[str, Any] = {"ids": args.ids} if args.ids else {}
    if args.table and not args.ids:
        body["table"] = args.table.split(".")
    answer = _ok(client.post(f"{base}/replay", json=body))
    print(f"{answer['replayed']} changes are on their way again.")


_ACTIONS: dict[str, Callable[[Any, str, argparse.Namespace], None]] = {
    "list": _list,
    "show": _show,
    "fix": _fix,
    "drop": _drop,
    "replay": _replay,
}


def _ok(answer: httpx.Response) -> dict[str, Any]:
    found: dict[str, Any] = answer.raise_for_status().json()
    return found


def _reason(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"the server answered {answer.status_code}"
