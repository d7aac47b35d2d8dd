"""`calve demo`: a small shop that changes all the time, and a live view of its changes becoming rows.

Orders are placed, paid and cancelled; money moves between accounts in source transactions. Ctrl-C ends it.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from calve.settings import Settings

if TYPE_CHECKING:
    import httpx

    from calve.cli._flags import Subparsers

NAMESPACE = "demo"
STATES = ("placed", "paid", "shipped")


def add(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("demo", help="send changes and watch them land", description=__doc__)
    parser.add_argument("--uri", help="address of the server [http://HOST:PORT of the settings]")
    parser.add_argument("--rate", type=int, default=200, metavar="N", help="changes in one second [200]")
    parser.add_argument("--seconds", type=float, metavar="S", help="end after so many seconds [never]")
    parser.add_argument("--token", help="bearer token, where the server asks for one")


def run(args: argparse.Namespace, settings: Settings) -> int:
    import httpx

    from calve.serve.hints import address

    uri = (args.uri or address(settings, settings.port)).rstrip("/")
    headers = {"Authorization": f"Bearer {args.token}"} if args.token else {}
    shop = Shop(random.Random())  # noqa: S311 - a game
    with httpx.Client(base_url=uri, headers=headers, timeout=30) as client:
        try:
            client.get("/health").raise_for_status()
        except httpx.HTTPError:
            print(f"No server answers at {uri}. Start one with `calve serve` or `make run`.", file=sys.stderr)
            return 2
        with contextlib.suppress(KeyboardInterrupt):
            _play(client, shop, max(1, args.rate), args.seconds)
        _settle(client, shop.sequence)
    print(_next(uri))
    return 0


@dataclass
class Shop:
    """Orders and accounts in memory: what the tables must come to hold."""

    dice: random.Random
    sequence: int = 0
    orders: dict[int, dict[str, Any]] = field(default_factory=dict)
    accounts: dict[int, dict[str, Any]] = field(
        default_factory=lambda: {number: {"id": number, "balance": 100} for number in range(1, 11)}
    )
    opened: bool = False

    def changes(self, count: int) -> list[dict[str, Any]]:
        """The next changes; a source transaction is never cut."""
        found: list[dict[str, Any]] = []
        if not self.opened:
            self.opened = True
            found += [self._event("INSERT", "accounts", None, row) for row in self.accounts.values()]
        while len(found) < count:
            found += self._transfer() if self.dice.random() < 0.2 else self._order()
        return found

    def _order(self) -> Iterator[dict[str, Any]]:
        if not self.orders or self.dice.random() < 0.5:
            number = len(self.orders) + self.sequence + 1
            row = {"id": number, "item": self.dice.choice("ABCDE"), "amount": self.dice.randint(1, 90)}
            self.orders[number] = row = row | {"state": STATES[0]}
            yield self._event("INSERT", "orders", None, row)
            return
        number = self.dice.choice(list(self.orders))
        before = self.orders[number]
        if self.dice.random() < 0.2:
            del self.orders[number]
            yield self._event("DELETE", "orders", before, None)
            return
        after = self.orders[number] = before | {"state": self.dice.choice(STATES)}
        yield self._event("UPDATE", "orders", before, after)

    def _transfer(self) -> Iterator[dict[str, Any]]:
        giver, taker = self.dice.sample(sorted(self.accounts), 2)
        amount, transaction = self.dice.randint(1, 20), f"transfer-{self.sequence}"
        for number, change in ((giver, -amount), (taker, amount)):
            before = self.accounts[number]
            after = self.accounts[number] = before | {"balance": before["balance"] + change}
            metadata = {"transactionId": transaction, "transactionEnd": number == taker}
            yield self._event("UPDATE", "accounts", before, after) | {"metadata": metadata}

    def _event(self, operation: str, table: str, before: Any, after: Any) -> dict[str, Any]:
        self.sequence += 1
        return {
            "sequence": self.sequence,
            "timestamp": time.time_ns() // 1_000_000,
            "operation": operation,
            "table": f"{NAMESPACE}.{table}",
            "rowId": str((after or before)["id"]),
            "before": before,
            "after": after,
        }


def _play(client: httpx.Client, shop: Shop, rate: int, seconds: float | None) -> None:
    source = f"demo-{uuid.uuid4().hex[:8]}"
    began_s = time.monotonic()
    print(f"Sending {rate} changes a second to {client.base_url} (Ctrl-C ends it)\n")
    while seconds is None or time.monotonic() - began_s < seconds:
        tick_s = time.monotonic()
        answer = client.post(
            "/cdc", json={"events": shop.changes(max(1, rate // 4))}, headers={"X-Source-Id": source}
        )
        answer.raise_for_status()
        took_ms = (time.monotonic() - tick_s) * 1000
        _show(client, shop.sequence, took_ms)
        time.sleep(max(0.0, tick_s + 0.25 - time.monotonic()))


def _show(client: httpx.Client, sent: int, took_ms: float | None) -> int:
    """One line that is written again and again; how many changes are not visible yet."""
    status = client.get("/status").raise_for_status().json()["landing"]
    tables = {
        name: table for name, table in status.get("tables", {}).items() if name.startswith(f"{NAMESPACE}.")
    }
    waiting: int = sum(table["pending-events"] for table in tables.values())
    landed = sum(table["events"] for table in tables.values())
    lag_s = max((table["lag-ms"] for table in tables.values()), default=0) / 1000
    acked = f"acknowledged in {took_ms:5.1f} ms" if took_ms is not None else "no more are sent     "
    stalled = status.get("stalled")
    note = f"  {stalled}" if stalled and lag_s > 60 else ""
    line = (
        f"sent {sent:>8,}   {acked}   visible {landed:>8,}   waiting {waiting:>6,}   lag {lag_s:5.1f} s{note}"
    )
    print(f"\r{line[:160]:<120}", end="", flush=True)
    return waiting


def _settle(client: httpx.Client, sent: int) -> None:
    """Wait until everything that was sent is visible."""
    until_s = time.monotonic() + 90
    with contextlib.suppress(KeyboardInterrupt):
        client.post("/flush", json={"wait": False})
        while _show(client, sent, None) and time.monotonic() < until_s:
            time.sleep(0.25)
    print()


def _next(uri: str) -> str:
    return _NEXT.replace("URI", uri).replace("NAMESPACE", NAMESPACE)


_NEXT = """
Look at the rows in DuckDB:

  INSTALL iceberg; LOAD iceberg;
  ATTACH 'main' AS lake (TYPE iceberg, ENDPOINT 'URI', AUTHORIZATION_TYPE 'none');
  SELECT state, count(*), sum(amount) FROM lake.NAMESPACE.orders GROUP BY state;
  SELECT sum(balance) FROM lake.NAMESPACE.accounts;          -- always 1000
  SELECT * FROM lake.NAMESPACE.orders__changes ORDER BY _position DESC LIMIT 10;
"""
