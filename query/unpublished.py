"""Add acknowledged changes that are not yet published to the tables of a query.

All tables of a warehouse are read at one number, and get the changes up to one id of the journal, at which no
source transaction is split. If a publish happens meanwhile, everything is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from catalog.errors import NotFound
from catalog.services.catalog import Catalog
from ingest.change import TableName
from query.landing import Freshness, Tables, Waiting, is_side_table
from query.resolve import Overlay, Plan, Resolver, TableRead

if TYPE_CHECKING:
    from ingest.staging.pending_fold import PendingFold
    from ingest.store.tables import LandedTable

TRIES_MAX = 5
VIEW_CATALOG = "memory"  # DuckDB's own database in a query process
RESERVED_SCHEMAS = frozenset({"information_schema", "pg_catalog"})


@dataclass(frozen=True, slots=True)
class FreshLimits:
    """Settings of the server: how much is added to one query."""

    events_max: int = 10_000
    bytes_max: int = 16 * 2**20


class MustWait(Exception):
    """The query has to wait for the publish. The message says why."""


class Unpublished:
    """Reads SQL: call it in a thread."""

    def __init__(
        self,
        catalog: Catalog,
        freshness: Freshness,
        pending: Callable[[], PendingFold] | None,
        limits: FreshLimits,
    ) -> None:
        self._catalog = catalog
        self._freshness = freshness
        self._pending = pending
        self._limits = limits

    def plan(self, tables: Tables, resolver: Resolver, references: Sequence[dict[str, Any]]) -> Plan:
        """Return a plan that has everything acknowledged before the call. `references` are the tables as the
        statement names them, `tables` the mirrors that they may be. Raises MustWait.
        """
        waiting = self._freshness.waiting(tables)
        if not waiting or self._pending is None:
            return resolver.plan(references)
        if resolver.reads_snapshot or any(table["at"] is not None for table in references):
            raise MustWait("the query reads a table at a moment of its own")
        self._check(waiting, references)
        from ingest.staging.pending_rows import CannotFold  # imports Arrow

        try:
            for _ in range(TRIES_MAX):
                found = self._tried(self._pending(), tables, waiting, lambda: resolver.plan(references))
                if found is not None:
                    return found
        except NotFound as error:
            raise MustWait("a table of the query is not published yet") from error
        except CannotFold as error:
            raise MustWait(str(error)) from error
        raise MustWait("its tables were published too often meanwhile")

    def _check(
        self, waiting: Mapping[tuple[str, TableName], Waiting], references: Sequence[Mapping[str, Any]]
    ) -> None:
        if any(is_side_table(table["name"]) for table in references):
            raise MustWait("the query reads a changes table or a rejects table")
        if (
            sum(one.events for one in waiting.values()) > self._limits.events_max
            or sum(one.stored_bytes for one in waiting.values()) > self._limits.bytes_max
        ):
            raise MustWait("too many changes are pending")

    def _tried(
        self,
        pending: PendingFold,
        tables: Tables,
        waiting: Mapping[tuple[str, TableName], Waiting],
        make_plan: Callable[[], Plan],
    ) -> Plan | None:
        """Return None if something was published between the first read and the last."""
        landed = {warehouse: pending.landed(warehouse, names) for warehouse, names in tables.items()}
        plan = make_plan()
        cuts = {warehouse: pending.cut(warehouse, rows) for warehouse, rows in landed.items()}
        for (warehouse, table), one in waiting.items():
            if max(cuts[warehouse], landed[warehouse][table].landed_id) < one.last_id:
                raise MustWait("a source transaction has not arrived completely")
        self._add(pending, plan, landed, cuts)
        unchanged = [pending.is_unchanged(warehouse, rows) for warehouse, rows in landed.items()]
        return plan if all(unchanged) else None

    def _add(
        self,
        pending: PendingFold,
        plan: Plan,
        landed: Mapping[str, Mapping[TableName, LandedTable]],
        cuts: dict[str, int],
    ) -> None:
        """Add the overlays to the plan, and let the statement read views of table and overlay."""
        found: dict[tuple[str, str, str], Overlay] = {}
        for read in plan.reads:
            table = (read.pin.alias, str(read.identifier.namespace), read.identifier.name)
            if table in found:
                continue
            row = landed.get(read.pin.warehouse, {}).get(read.identifier.parts)
            one = None if row is None else self._overlay(pending, read, row, cuts[read.pin.warehouse], table)
            if one is not None:
                found[table] = one
        views = [tuple(part.lower() for part in one.view) for one in found.values()]
        if len(set(views)) < len(views) or any(view[1] in RESERVED_SCHEMAS for view in views):
            raise MustWait("a table cannot be replaced by a view of its name")
        plan.overlays, plan.cuts = list(found.values()), cuts
        for key, resolved in plan.names.items():
            if resolved[:3] in found:
                plan.names[key] = (*found[resolved[:3]].view, None)

    def _overlay(
        self,
        pending: PendingFold,
        read: TableRead,
        landed: LandedTable,
        cut: int,
        table: tuple[str, str, str],
    ) -> Overlay | None:
        from query.overlay_rows import encoded

        pin = read.pin
        if pin.number is None:
            raise MustWait("the query reads an open transaction")
        known = pending.table(self._catalog, pin.warehouse, landed, pin.number)
        rows = None if known is None else pending.rows(self._catalog, pin.warehouse, known, cut)
        if rows is None:
            return None
        shape, data = encoded(rows)
        return Overlay(table, (VIEW_CATALOG, *table[1:]), shape.as_message(), data)
