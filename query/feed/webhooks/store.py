"""Webhooks in SQL: how far each has read, and which server process delivers it.

A process claims a webhook for a limited time and renews the claim. Every write of a claimed webhook names the
claim: a process that has lost it changes nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson
import sqlalchemy as sa

from catalog.errors import Conflict, NotFound
from catalog.store.database import Database
from catalog.store.schema import webhooks
from query.feed.cursors import cursor_of
from query.feed.feed import SubscribeRequest
from query.feed.webhooks.sealing import Sealing

PER_WAREHOUSE_MAX = 100
ACTIVE, DEAD = "active", "dead"


class NoSuchWebhook(NotFound):
    type = "NoSuchWebhookException"


@dataclass(frozen=True, slots=True)
class Webhook:
    id: str
    warehouse: str
    url: str
    secret: str = field(repr=False)  # sealed
    wanted: dict[str, Any]  # tables, operations, where, columns
    principal: str
    created_ms: int
    state: str
    token: str  # of the change feed: everything up to it was delivered
    attempts: int  # failures since the last success
    next_attempt_ms: int
    last_error: str | None
    last_success_ms: int | None
    died_ms: int | None
    number: int | None  # of the commit up to which everything was delivered
    read_ms: int | None  # when the token was last advanced

    def request(self) -> SubscribeRequest:
        return SubscribeRequest(self.warehouse, from_=self.token, **self.wanted)


_COLUMNS = (
    webhooks.c.id,
    webhooks.c.warehouse,
    webhooks.c.url,
    webhooks.c.secret,
    webhooks.c.wanted,
    webhooks.c.principal,
    webhooks.c.created_ms,
    webhooks.c.state,
    webhooks.c.token,
    webhooks.c.attempts,
    webhooks.c.next_attempt_ms,
    webhooks.c.last_error,
    webhooks.c.last_success_ms,
    webhooks.c.died_ms,
    webhooks.c.number,
    webhooks.c.read_ms,
)


def _read_up_to(token: str, now_ms: int) -> dict[str, int]:
    """Return the columns that say what the webhook still needs (catalog/store/webhook_holds.py)."""
    return {"number": cursor_of(token).number, "read_ms": now_ms}


def _webhook(row: Any) -> Webhook:
    id_, warehouse, url, secret, wanted, *rest = row
    return Webhook(id_, warehouse, url, secret, orjson.loads(wanted), *rest)


class WebhookStore:
    def __init__(self, database: Database, now_ms: Callable[[], int], sealing: Sealing) -> None:
        self._database = database
        self._sealing = sealing
        self._now_ms = now_ms

    # -- for the API

    def create(
        self, warehouse: str, url: str, secret: str, wanted: dict[str, Any], principal: str, token: str
    ) -> Webhook:
        id_, now_ms = uuid.uuid4().hex, self._now_ms()
        made = Webhook(
            id=id_,
            warehouse=warehouse,
            url=url,
            secret=self._sealing.sealed(id_, secret),
            wanted=wanted,
            principal=principal,
            created_ms=now_ms,
            state=ACTIVE,
            token=token,
            attempts=0,
            next_attempt_ms=0,
            last_error=None,
            last_success_ms=None,
            died_ms=None,
            **_read_up_to(token, now_ms),
        )
        values = {column.name: getattr(made, column.name) for column in _COLUMNS}
        values |= {"wanted": orjson.dumps(wanted).decode(), "claim": "", "claimed_until_ms": 0}

        def work(connection: sa.Connection) -> None:
            count = sa.select(sa.func.count()).where(webhooks.c.warehouse == warehouse)
            if connection.execute(count).scalar_one() >= PER_WAREHOUSE_MAX:
                raise Conflict(f"{warehouse} has {PER_WAREHOUSE_MAX} webhooks: delete one first")
            connection.execute(sa.insert(webhooks).values(values))

        self._database.write(work)
        return made

    def all(self, warehouse: str) -> list[Webhook]:
        found = sa.select(*_COLUMNS).where(webhooks.c.warehouse == warehouse)
        return [_webhook(row) for row in self._database.fetch_all(found.order_by(webhooks.c.created_ms))]

    def one(self, warehouse: str, id_: str) -> Webhook:
        row = self._database.fetch_one(
            sa.select(*_COLUMNS).where(webhooks.c.warehouse == warehouse, webhooks.c.id == id_)
        )
        if row is None:
            raise NoSuchWebhook(f"Webhook does not exist: {id_}")
        return _webhook(row)

    def delete(self, warehouse: str, id_: str) -> None:
        statement = sa.delete(webhooks).where(webhooks.c.warehouse == warehouse, webhooks.c.id == id_)
        if not self._database.write(lambda connection: connection.execute(statement).rowcount):
            raise NoSuchWebhook(f"Webhook does not exist: {id_}")

    def resume(self, warehouse: str, id_: str, token: str | None) -> Webhook:
        """Deliver again, at once; from another token if one is given."""
        values: dict[str, Any] = {"state": ACTIVE, "attempts": 0, "next_attempt_ms": 0, "died_ms": None}
        if token is not None:
            values |= {"claim": "", "claimed_until_ms": 0, "token": token}
            values |= _read_up_to(token, self._now_ms())
        statement = (
            sa.update(webhooks).where(webhooks.c.warehouse == warehouse, webhooks.c.id == id_).values(values)
        )
        self._database.write(lambda connection: connection.execute(statement).rowcount)
        return self.one(warehouse, id_)

    # -- for deliveries

    def due(self, limit: int) -> list[str]:
        """Return webhooks that no process delivers, and whose next attempt is due."""
        now_ms = self._now_ms()
        found = sa.select(webhooks.c.id).where(
            webhooks.c.state == ACTIVE,
            webhooks.c.claimed_until_ms <= now_ms,
            webhooks.c.next_attempt_ms <= now_ms,
        )
        return [row[0] for row in self._database.fetch_all(found.limit(limit))]

    def claim(self, id_: str, claim: str, lease_ms: int) -> Webhook | None:
        """Claim a webhook for this process. Returns None if another process has it."""
        now_ms = self._now_ms()
        statement = (
            sa.update(webhooks)
            .where(webhooks.c.id == id_, webhooks.c.state == ACTIVE, webhooks.c.claimed_until_ms <= now_ms)
            .values(claim=claim, claimed_until_ms=now_ms + lease_ms)
        )
        if not self._database.write(lambda connection: connection.execute(statement).rowcount):
            return None
        row = self._database.fetch_one(sa.select(*_COLUMNS).where(webhooks.c.id == id_))
        return _webhook(row) if row is not None else None

    def keep(self, id_: str, claim: str, lease_ms: int, token: str, *, is_delivered: bool) -> bool:
        """Renew the claim and store how far the webhook has read. Returns False if the claim is lost."""
        now_ms = self._now_ms()
        values: dict[str, Any] = {"claimed_until_ms": now_ms + lease_ms, "token": token}
        values |= _read_up_to(token, now_ms)
        if is_delivered:
            values |= {"attempts": 0, "last_error": None, "last_success_ms": now_ms}
        return self._of_claim(id_, claim, values)

    def release(self, id_: str, claim: str) -> bool:
        return self._of_claim(id_, claim, {"claim": "", "claimed_until_ms": 0})

    def failed(self, id_: str, claim: str, error: str, attempts: int, wait_ms: int | None) -> bool:
        """Record a failure and release the claim. Without `wait_ms` the webhook is dead."""
        now_ms = self._now_ms()
        values: dict[str, Any] = {"claim": "", "claimed_until_ms": 0, "attempts": attempts}
        values["last_error"] = error
        if wait_ms is None:
            values |= {"state": DEAD, "died_ms": now_ms}
        else:
            values["next_attempt_ms"] = now_ms + wait_ms
        return self._of_claim(id_, claim, values)

    def delete_dead(self, before_ms: int) -> int:
        """Delete webhooks that died before this time."""
        is_due = sa.and_(webhooks.c.state == DEAD, webhooks.c.died_ms < before_ms)
        if self._database.fetch_one(sa.select(webhooks.c.id).where(is_due).limit(1), {}) is None:
            return 0  # so that nothing is written
        statement = sa.delete(webhooks).where(is_due)
        return self._database.write(lambda connection: connection.execute(statement).rowcount)

    def states(self) -> tuple[dict[str, int], int | None]:
        """Return the number of webhooks in each state, and the oldest `read_ms` of those that fail."""
        counts = {ACTIVE: 0, "failing": 0, DEAD: 0}
        oldest = None
        is_failing = webhooks.c.attempts > 0
        found = sa.select(webhooks.c.state, is_failing, sa.func.count(), sa.func.min(webhooks.c.read_ms))
        for state, failing, count, read_ms in self._database.fetch_all(
            found.group_by(webhooks.c.state, is_failing)
        ):
            counts["failing" if state == ACTIVE and failing else state] += count
            if state == ACTIVE and failing and read_ms is not None:
                oldest = int(read_ms)
        return counts, oldest

    def _of_claim(self, id_: str, claim: str, values: dict[str, Any]) -> bool:
        statement = sa.update(webhooks).where(webhooks.c.id == id_, webhooks.c.claim == claim).values(values)
        return bool(self._database.write(lambda connection: connection.execute(statement).rowcount))
