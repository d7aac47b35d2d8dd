"""Stage and fold acknowledged changes that are not yet published, by the code that lands batches.

A table is read at a number of its warehouse. The changes after its landed id and up to a cut of the journal
are added to it. A publish between the two reads would make a change count twice or not at all, so the caller
reads the landed rows first, and compares them at the end (`is_unchanged`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from catalog.errors import CatalogError, Unavailable
from catalog.names import WarehouseRef
from catalog.services.catalog import Catalog
from ingest.change import TableName
from ingest.identity import ArrivedChange, current_schema, key_of_table
from ingest.journal.journal import Journal
from ingest.staging.context import CannotPrestage, StagingContext
from ingest.staging.pending_changes import PendingChanges, TooManyChanges
from ingest.staging.pending_rows import Bases, CannotFold, FoldedRows, PendingRows, open_references
from ingest.staging.targets import TableState, table_state
from ingest.staging.unpublished import stage_in_memory
from ingest.store.tables import LandedTable, LandingTables

TABLES_MAX = 256
FOLDED_MAX = 16
# Values of these types are equal in SQL if and only if they are equal when they are folded.
COMPARABLE_TYPES = frozenset({"int", "long", "string", "date", "timestamp", "timestamptz"})

# Arguments: staged rows, the description of their table as in a job, and a function for old rows of the
# mirror.
Fold = Callable[[pa.Table, dict[str, Any], Bases], FoldedRows]
Landed = Mapping[TableName, LandedTable]


@dataclass(frozen=True, slots=True)
class PendingTable:
    """A table at a number of its warehouse, with the types of its key columns."""

    number: int
    state: TableState
    schema: dict[str, Any]
    key_types: Mapping[str, str]


class PendingFold:
    """Folds the pending changes of tables. One for each server process."""

    def __init__(self, journal: Journal, tables: LandingTables, fold: Fold) -> None:
        self.changes = PendingChanges(journal)
        self._journal = journal
        self._tables = tables
        self._fold = fold
        self._known: dict[tuple[str, TableName], PendingTable] = {}
        # For each table, the last result, and the newest change in it.
        self._folded: dict[tuple[str, TableName], tuple[PendingTable, int, PendingRows | None]] = {}

    def landed(self, warehouse: str, tables: Collection[TableName]) -> dict[TableName, LandedTable]:
        """Return how far each table has landed. Call it before the warehouse is read."""
        return self._tables.some(warehouse, tables)

    def is_unchanged(self, warehouse: str, landed: Landed) -> bool:
        """Return whether nothing was published to these tables since `landed` was read."""
        now = self._tables.some(warehouse, landed.keys())
        changed = [table for table, row in landed.items() if now[table].landed_id != row.landed_id]
        for table in changed:
            # The journal may have been trimmed while it was read.
            self.changes.forget(warehouse, table)
        return not changed

    def cut(self, warehouse: str, landed: Landed) -> int:
        """Return the newest journal id at which these tables have whole source transactions only.

        The head is read first. A transaction that arrives later is after it.
        """
        head = self._journal.head(warehouse)
        after = {table: row.landed_id for table, row in landed.items()}
        border = self._journal.border(warehouse, landed.keys(), after, head, time.time_ns() // 1_000_000)
        if border > head:
            raise CannotFold("a source transaction goes on after the newest change")
        return border

    def table(
        self, catalog: Catalog, warehouse: str, landed: LandedTable, number: int
    ) -> PendingTable | None:
        """Return the table at a number; None if there is no mirror. It is read again only after a commit in
        the warehouse or a change of its settings.
        """
        where = (warehouse, landed.table)
        known = self._known.get(where)
        if known is not None and known.number == number and known.state.landed == landed:
            return known
        state = catalog.state(WarehouseRef(warehouse, at=str(number)))
        positions = self._tables.watermarks(warehouse)
        marks = {mark.source: mark.position for mark in positions if mark.table == landed.table}
        found = table_state(state, landed, marks)
        schema = current_schema(found.mirror)
        if schema is None:
            return None
        key = key_of_table(landed.settings.key, schema, ())
        types = {field["name"]: field["type"] for field in schema["fields"]}
        key_types = {name: str(types[name]) for name in key if name in types}
        known = PendingTable(number, found, schema, key_types)
        if len(self._known) >= TABLES_MAX:
            self._known.clear()
        self._known[where] = known
        return known

    def staged(
        self,
        catalog: Catalog,
        warehouse: str,
        table: PendingTable,
        span: tuple[int, int],
        arrived: list[ArrivedChange],
    ) -> tuple[dict[str, Any], pa.Table | None]:
        """Return the description of the table as in a job, and the staged rows; None if the changes have no
        effect on rows. CannotFold if more than rows would change.
        """
        self._require_no_resync(warehouse, table.state.landed.table)
        context = self._context(catalog)
        try:
            described, staged = stage_in_memory(context, table.state, warehouse, span, arrived)
        except CannotPrestage as error:
            raise CannotFold(
                "a change needs more than rows: a new column, a dead letter, a rebuild"
            ) from error
        except Unavailable:
            raise
        except CatalogError as error:
            raise CannotFold(error.message) from error
        if staged is not None and (described["late"] or described["mirror"] is None):
            raise CannotFold(
                "a change is older than the table" if described["late"] else "there is no mirror"
            )
        return described, staged

    def folded(self, staged: pa.Table, described: dict[str, Any], bases: Bases) -> FoldedRows:
        return self._fold(staged, described, bases)

    def rows(self, catalog: Catalog, warehouse: str, table: PendingTable, cut: int) -> PendingRows | None:
        """Return what the changes of a table up to the cut make of its rows; None if there are none."""
        landed = table.state.landed
        span = (landed.landed_id, cut)
        if cut <= landed.landed_id:
            return None
        where = (warehouse, landed.table)
        try:
            newest = self.changes.newest(*where, table.key_types, span)
            if newest is None:
                return None
            known = self._folded.get(where)
            if known is None or known[0] is not table or known[1] != newest:
                known = table, newest, self._rows(catalog, warehouse, table, span)
                if len(self._folded) >= FOLDED_MAX:
                    self._folded.clear()
                self._folded[where] = known
        except TooManyChanges as error:
            raise CannotFold("too many changes are pending") from error
        self._require_no_resync(*where)
        return known[2]

    def _rows(
        self, catalog: Catalog, warehouse: str, table: PendingTable, span: tuple[int, int]
    ) -> PendingRows | None:
        arrived = self.changes.of_table(warehouse, table.state.landed.table, table.key_types, span)
        described, staged = self.staged(catalog, warehouse, table, span, arrived)
        if staged is None:
            return None
        _require_plain(table, described)
        references = open_references(staged, described)
        return references.resolved(self._fold(references.staged, references.described, references.bases))

    def _require_no_resync(self, warehouse: str, table: TableName) -> None:
        """Call it after the journal was read: the changes of a resync follow its record."""
        if table in self._tables.resyncs(warehouse):
            raise CannotFold("a resync is running")

    def _context(self, catalog: Catalog) -> StagingContext:
        return StagingContext(catalog, self._journal, self._tables)


def _require_plain(table: PendingTable, described: Mapping[str, Any]) -> None:
    """Raise CannotFold if SQL cannot find the old rows of the keys, or would not fill all columns."""
    types = {field["name"]: field["type"] for field in table.schema["fields"]}
    for name in described["key"]:
        type_ = types.get(name)
        if type_ not in COMPARABLE_TYPES and not str(type_).startswith("decimal"):
            raise CannotFold(f"the key column {name} is of the type {type_}")
    if described["guessed"] and described["has-moves"]:
        raise CannotFold("the key is a guess, and a change changes it")
    if len({name.lower() for name in types}) < len(types):
        raise CannotFold("two columns have the same name for SQL")
    stamp = table.state.landed.settings.names["commit-timestamp"]
    if types.keys() - {stamp} != set(described["columns"]):
        raise CannotFold("the mirror has columns that the changes do not fill")
