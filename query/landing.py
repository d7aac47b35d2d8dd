"""Find acknowledged changes that a query does not see yet: their age, and waiting until they are visible."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from catalog.errors import DeadlineExceeded, Invalid
from catalog.models import Caller, Role
from catalog.names import Namespace
from ingest.api.context import ApiContext
from ingest.api.results import parse_token
from ingest.change import TableName
from query.resolve import Plan

FRESH = "fresh"
COMMITTED = "committed"
AT_LEAST = "at_least:"
PUBLISHED, JOURNAL, WAITED = "published", "journal", "waited"  # where the changes of a fresh query are from
SIDE_TABLES = ("__changes", "__rejects")  # beside each mirror; they contain the changes of the mirror


@dataclass(frozen=True, slots=True)
class Waiting:
    """Acknowledged changes of one table that no reader sees yet."""

    last_id: int
    oldest_ms: int
    events: int
    stored_bytes: int


Tables = Mapping[str, Collection[TableName]]  # of each warehouse


class Freshness:
    """Queries ingest. Without ingest, every response is up to date. Functions that are not `async` read SQL:
    call them in a thread.
    """

    def __init__(self, ingest: ApiContext | None) -> None:
        self._ingest = ingest

    def waiting(self, tables: Tables) -> dict[tuple[str, TableName], Waiting]:
        """Return the pending changes. Call it before the warehouses are pinned: later changes are newer than
        the response.
        """
        if self._ingest is None:
            return {}
        found = {}
        for warehouse, names in tables.items():
            pending = [row for row in self._ingest.journal.pending(warehouse) if row.table in names]
            landed = self._ingest.landing.landed(warehouse, {row.table for row in pending}) if pending else {}
            for row in pending:
                if row.last_id > landed.get(row.table, 0):
                    found[warehouse, row.table] = Waiting(
                        row.last_id, row.oldest_ms, row.events, row.stored_bytes
                    )
        return found

    def age_ms(self, waiting: Mapping[tuple[str, TableName], Waiting], plan: Plan, now_ms: int) -> int:
        """Return the age of the oldest change in `waiting` that the pinned tables do not have."""
        if not waiting:
            return 0
        missing = self._missing(waiting, plan)
        return max((max(0, now_ms - one.oldest_ms) for one in missing), default=0)

    async def wait(self, consistency: str, tables: Tables, caller: Caller, timeout_s: float) -> None:
        """Wait until the tables have what `consistency` requires. DeadlineExceeded if that takes too long."""
        if consistency == COMMITTED or self._ingest is None:
            return
        if consistency == FRESH:
            await self.wait_until_fresh(tables, timeout_s)
            return
        warehouse, journal_id = parse_token(consistency.removeprefix(AT_LEAST))
        if caller.role(warehouse) is None:
            raise Invalid(
                f"consistency: the token belongs to {warehouse}, in which {caller.name} has no role"
            )
        await self.wait_for_token(warehouse, journal_id, tables.get(warehouse, ()), timeout_s)

    async def wait_for_token(
        self, warehouse: str, journal_id: int, tables: Collection[TableName], timeout_s: float
    ) -> None:
        """Wait until these tables have everything up to the token. The server publishes it as soon as
        possible.
        """
        ingest = self._ingest
        assert ingest is not None
        head = await ingest.run_query(lambda: ingest.journal.head(warehouse))
        if journal_id > head:
            raise Invalid(f"consistency: {warehouse} has acknowledged nothing up to {journal_id} yet")
        pending = await ingest.run_query(lambda: ingest.journal.pending(warehouse))
        until = {
            row.table: min(row.last_id, journal_id)
            for row in pending
            if row.table in tables and row.first_id <= journal_id
        }
        if not until:
            return
        await ingest.run_query(lambda: ingest.landing.flush(warehouse, set(until)))
        if not await ingest.visibility.wait(warehouse, until, timeout_s):
            raise _late(timeout_s)

    async def wait_until_fresh(self, tables: Tables, timeout_s: float) -> None:
        """Wait until the tables have what is acknowledged now. DeadlineExceeded if that takes too long."""
        ingest = self._ingest
        assert ingest is not None
        waiting = await ingest.run_query(lambda: self.waiting(tables))
        until_s = time.monotonic() + timeout_s
        waits = []
        for warehouse in {warehouse for warehouse, _ in waiting}:
            until = {table: one.last_id for (where, table), one in waiting.items() if where == warehouse}
            await ingest.run_query(lambda name=warehouse, some=set(until): ingest.landing.flush(name, some))  # type: ignore[misc]
            waits.append(ingest.visibility.wait(warehouse, until, max(0.0, until_s - time.monotonic())))
        if not all(await asyncio.gather(*waits)):
            raise _late(timeout_s)

    def _missing(self, waiting: Mapping[tuple[str, TableName], Waiting], plan: Plan) -> list[Waiting]:
        assert self._ingest is not None
        missing = []
        for (warehouse, table), one in waiting.items():
            row = self._ingest.landing.rows(warehouse, {table}).get(table)
            number = plan.pins[warehouse].number if warehouse in plan.pins else None
            is_shown = row is not None and row.landed_id >= one.last_id and row.number is not None
            if not (is_shown and number is not None and row is not None and (row.number or 0) <= number):
                missing.append(one)
        return missing


def is_side_table(name: str) -> bool:
    return name.endswith(SIDE_TABLES)


def mirrors(
    references: Sequence[Mapping[str, Any]], warehouse: str, namespace: Namespace, caller: Caller
) -> Tables:
    """Return the tables for which ingest may have changes, by warehouse. `references` are the tables as the
    statement names them; without a warehouse or a namespace, they are in those given here.

    The first part of `a.b.t` is a warehouse or a namespace. Here it is both: a table that does not exist has
    no changes.
    """
    found: dict[str, set[TableName]] = {}
    for table in references:
        first = table["catalog"]
        levels = tuple(table["schema"].split(".")) if table["schema"] else namespace.levels
        found.setdefault(first or warehouse, set()).add(mirror_name(levels, table["name"]))
        if first:
            nested = (*first.split("."), *levels)
            found.setdefault(warehouse, set()).add(mirror_name(nested, table["name"]))
    return {name: tables for name, tables in found.items() if caller.role(name) is not None}


def mirror_name(levels: tuple[str, ...], name: str) -> TableName:
    """Return the mirror whose changes a table contains."""
    for suffix in SIDE_TABLES:
        name = name.removesuffix(suffix)
    return (*levels, name)


def is_reader(caller: Caller, warehouse: str) -> bool:
    role = caller.role(warehouse)
    return role is not None and role >= Role.READER


def _late(timeout_s: float) -> DeadlineExceeded:
    return DeadlineExceeded(
        f"Acknowledged changes of these tables did not become visible within {timeout_s:.3g} s. They are "
        "kept and will land; GET /status says what they wait for. Ask again, or without `consistency`"
    )
