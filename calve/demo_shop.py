"""The shop of `calve demo`: orders are placed, paid and cancelled; money moves between accounts in source
transactions.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

NAMESPACE = "shop"
TABLES = ("orders", "accounts")
STATUSES = ("placed", "paid", "shipped")


@dataclass
class Shop:
    """Orders and accounts in memory: the rows that the tables must finally contain."""

    rng: random.Random
    sequence: int = 0
    orders: dict[int, dict[str, Any]] = field(default_factory=dict)
    accounts: dict[int, dict[str, Any]] = field(
        default_factory=lambda: {number: {"id": number, "balance": 100} for number in range(1, 11)}
    )
    last_order: int = 0
    opened: bool = False

    def changes(self, count: int) -> list[dict[str, Any]]:
        """The next changes; a source transaction is never split."""
        found: list[dict[str, Any]] = []
        if not self.opened:
            self.opened = True
            found += [self._event("INSERT", "accounts", None, row) for row in self.accounts.values()]
        while len(found) < count:
            found += self._transfer() if self.rng.random() < 0.2 else self._order()
        return found

    def _order(self) -> Iterator[dict[str, Any]]:
        if not self.orders or self.rng.random() < 0.5:
            self.last_order = number = self.last_order + 1
            row = {"id": number, "item": self.rng.choice("ABCDE"), "amount": self.rng.randint(1, 90)}
            self.orders[number] = row = row | {"status": STATUSES[0]}
            yield self._event("INSERT", "orders", None, row)
            return
        number = self.rng.choice(list(self.orders))
        before = self.orders[number]
        if self.rng.random() < 0.2:
            del self.orders[number]
            yield self._event("DELETE", "orders", before, None)
            return
        after = self.orders[number] = before | {"status": self.rng.choice(STATUSES)}
        yield self._event("UPDATE", "orders", before, after)

    def _transfer(self) -> Iterator[dict[str, Any]]:
        giver, taker = self.rng.sample(sorted(self.accounts), 2)
        amount, transaction = self.rng.randint(1, 20), f"transfer-{self.sequence}"
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
