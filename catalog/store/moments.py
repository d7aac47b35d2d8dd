"""Kept moments of a warehouse: the numbers whose state can be read.

Every number above `maintenance.thinned_number` is kept. At or below it, the numbers in `moments` are: those
that the policy keeps, and those that readers have pinned. Thinning and pinning lock the row of `maintenance`,
so a pinned number is never forgotten. The base numbers of open transactions are never forgotten either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from catalog.store.database import Database
from catalog.store.schema import history, maintenance, moments, transactions

_w: sa.BindParameter[str] = sa.bindparam("w")
_of_warehouse = moments.c.warehouse == _w
_THINNED = sa.select(maintenance.c.thinned_number).where(maintenance.c.warehouse == _w)
_LOCK = _THINNED.with_for_update()
_ENSURE = sa.text("INSERT INTO maintenance (warehouse, lease_holder) VALUES (:w, '') ON CONFLICT DO NOTHING")
_AT = (
    sa.select(moments.c.number, moments.c.pinned_until_ms)
    .where(_of_warehouse, moments.c.number <= sa.bindparam("n"))
    .order_by(moments.c.number.desc())
    .limit(1)
)
_ALL = (
    sa.select(moments.c.number, moments.c.time_ms, moments.c.pinned_until_ms)
    .where(_of_warehouse)
    .order_by(moments.c.number)
)
_OLDEST = sa.select(moments.c.number, moments.c.time_ms).where(_of_warehouse).order_by(moments.c.number)
_NUMBERS = (
    sa.select(history.c.number, sa.func.min(history.c.time_ms))
    .where(
        history.c.warehouse == _w,
        history.c.number > sa.bindparam("after"),
        history.c.time_ms < sa.bindparam("before_ms"),
    )
    .group_by(history.c.number)
    .order_by(history.c.number)
    .limit(sa.bindparam("limit", type_=sa.Integer))
)
_TIME = sa.select(sa.func.min(history.c.time_ms)).where(
    history.c.warehouse == _w, history.c.number == sa.bindparam("n")
)
_RECENT = sa.select(
    sa.func.min(history.c.time_ms),
    sa.select(moments.c.pinned_until_ms)
    .where(_of_warehouse, moments.c.number == sa.bindparam("n"))
    .scalar_subquery(),
).where(history.c.warehouse == _w, history.c.number == sa.bindparam("n"))
_BASES = sa.select(transactions.c.base_number).where(
    transactions.c.warehouse == _w,
    transactions.c.state == "open",
    transactions.c.expires_ms > sa.bindparam("now"),
)
_INSERT = sa.text(
    "INSERT INTO moments (warehouse, number, time_ms) VALUES (:w, :n, :time_ms) ON CONFLICT DO NOTHING"
)
_PIN = sa.text(
    "INSERT INTO moments (warehouse, number, time_ms, pinned_until_ms) VALUES (:w, :n, :time_ms, :until) "
    "ON CONFLICT (warehouse, number) DO UPDATE SET pinned_until_ms = excluded.pinned_until_ms "
    "WHERE moments.pinned_until_ms < excluded.pinned_until_ms"
)
_FORGET = sa.delete(moments).where(_of_warehouse, moments.c.number == sa.bindparam("n"))
_SET_THINNED = (
    sa.update(maintenance).where(maintenance.c.warehouse == _w).values(thinned_number=sa.bindparam("to"))
)
_LEASE = (
    sa.update(maintenance)
    .where(
        maintenance.c.warehouse == _w,
        sa.or_(
            maintenance.c.lease_holder == sa.bindparam("holder"),
            maintenance.c.lease_until_ms <= sa.bindparam("now"),
        ),
    )
    .values(lease_holder=sa.bindparam("holder"), lease_until_ms=sa.bindparam("until"))
)

Moment = tuple[int, int]  # number, time in milliseconds


@dataclass(frozen=True, slots=True)
class KeptMoment:
    """The answer to a request for a number."""

    number: int | None  # None: nothing at or before it is kept
    pinned_until_ms: int = 0
    recent_ms: int | None = None  # the time of a number that is not thinned yet


@dataclass(frozen=True, slots=True)
class KeptMoments:
    """All kept moments: the listed numbers, and every number above `thinned_number`."""

    thinned_number: int
    listed: list[Moment]

    @property
    def numbers(self) -> list[int]:
        return [number for number, _ in self.listed]


class MomentStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    def at(self, warehouse: str, number: int) -> KeptMoment:
        """The last kept moment at or before a number."""
        thinned = self._database.fetch_one(_THINNED, {"w": warehouse})
        if thinned is None or number > thinned[0]:
            row = self._database.fetch_one(_RECENT, {"w": warehouse, "n": number})
            return KeptMoment(number, row[1] or 0, row[0]) if row is not None else KeptMoment(number)
        row = self._database.fetch_one(_AT, {"w": warehouse, "n": number})
        if row is None:
            return KeptMoment(0 if number == 0 else None)
        return KeptMoment(row[0], row[1])

    def all(self, warehouse: str) -> KeptMoments:
        # The boundary is read first. If a thinning runs in between, the answer has more moments than are
        # kept; in the other order it would lack some.
        thinned = self._database.fetch_one(_THINNED, {"w": warehouse})
        rows = self._database.fetch_all(_ALL, {"w": warehouse})
        return KeptMoments(thinned[0] if thinned else 0, [(row[0], row[1]) for row in rows])

    def oldest(self, warehouse: str) -> Moment | None:
        row = self._database.fetch_one(_OLDEST.limit(1), {"w": warehouse})
        return (row[0], row[1]) if row else None

    def pin(self, warehouse: str, number: int, until_ms: int) -> int | None:
        """Keep the last kept moment at or before a number until a time, and return it."""

        def work(connection: sa.Connection) -> int | None:
            thinned = _locked(connection, warehouse)
            if number <= thinned:
                row = connection.execute(_AT, {"w": warehouse, "n": number}).first()
                if row is None:
                    return 0 if number == 0 else None
                found: int = row[0]
            else:
                found = number
            time_ms = connection.execute(_TIME, {"w": warehouse, "n": found}).scalar()
            if time_ms is not None:  # number 0 is the empty warehouse and needs no pin
                params = {"w": warehouse, "n": found, "time_ms": time_ms, "until": until_ms}
                connection.execute(_PIN, params)
            return found

        return self._database.write(work)

    def thin(
        self,
        warehouse: str,
        *,
        now_ms: int,
        before_ms: int,
        limit: int,
        choose: Callable[[Sequence[Moment]], set[int]],
    ) -> int:
        """Forget the moments that `choose` does not keep, among the kept ones and the next `limit` numbers
        from before `before_ms`. Returns how many were forgotten.

        The newest number is never thinned, so the present is always a kept moment.
        """

        def work(connection: sa.Connection) -> int:
            thinned = _locked(connection, warehouse)
            listed = connection.execute(_ALL, {"w": warehouse}).all()
            params = {"w": warehouse, "after": thinned, "before_ms": before_ms, "limit": limit + 1}
            passed = [(row[0], row[1]) for row in connection.execute(_NUMBERS, params)][:limit]
            bases = {row[0] for row in connection.execute(_BASES, {"w": warehouse, "now": now_ms})}
            known = {row[0] for row in listed}
            to = passed[-1][0] if passed else thinned
            old = [(row[0], row[1]) for row in listed if row[0] <= to]
            candidates = sorted({*old, *passed})
            keep = choose(candidates) | bases | {row[0] for row in listed if row[2] > now_ms}
            forgotten = [number for number, _ in candidates if number not in keep]
            added = [moment for moment in passed if moment[0] in keep and moment[0] not in known]
            if added:
                connection.execute(_INSERT, [{"w": warehouse, "n": n, "time_ms": t} for n, t in added])
            gone = [number for number in forgotten if number in known]
            if gone:
                connection.execute(_FORGET, [{"w": warehouse, "n": number} for number in gone])
            if passed:
                connection.execute(_SET_THINNED, {"w": warehouse, "to": to})
            return len(forgotten)

        return self._database.write(work)

    def lease(self, warehouse: str, holder: str, now_ms: int, until_ms: int) -> bool:
        """Whether this process may maintain the warehouse until then."""

        def work(connection: sa.Connection) -> bool:
            connection.execute(_ENSURE, {"w": warehouse})
            params = {"w": warehouse, "holder": holder, "now": now_ms, "until": until_ms}
            return connection.execute(_LEASE, params).rowcount == 1

        return self._database.write(work)


def _locked(connection: sa.Connection, warehouse: str) -> int:
    connection.execute(_ENSURE, {"w": warehouse})
    thinned: int = connection.execute(_LOCK, {"w": warehouse}).scalar_one()
    return thinned
