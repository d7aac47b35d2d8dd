"""One table name of one warehouse, for a caller whose rights have been checked.

The server imports this module when it starts. PyIceberg takes seconds to import and 200 MB of memory, so
`query/tables/opening.py`, and with it PyIceberg, is imported when the first table is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from catalog.models import Warehouse
from catalog.names import Identifier, WarehouseRef
from catalog.services.catalog import Catalog
from catalog.services.writes import WriteContext
from ingest.store.tables import LandingTables

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from query.tables.opening import WarehouseFileIO

IoProperties = Callable[[str], Mapping[str, str]]  # for PyIceberg's FileIO, by the root of a warehouse


@dataclass(frozen=True, slots=True)
class TableAccess:
    """One table name of one warehouse, for a caller whose rights have been checked."""

    catalog: Catalog
    warehouse: Warehouse
    identifier: Identifier
    io: WarehouseFileIO
    landing: LandingTables | None
    context: WriteContext | None = None  # None: read-only

    def current(self) -> Table:
        """Return the current table. NoSuchTable if there is none."""
        return self._open(WarehouseRef(self.warehouse.name), self.context)

    def at(self, number: int) -> Table:
        """Return the table as it was after a commit of the warehouse, read-only."""
        return self._open(WarehouseRef(self.warehouse.name, at=str(number)), None)

    def beside(self, suffix: str) -> TableAccess:
        """Return the access to the table of the same namespace whose name has this suffix."""
        identifier = Identifier(self.identifier.namespace, self.identifier.name + suffix)
        return TableAccess(self.catalog, self.warehouse, identifier, self.io, self.landing)

    def _open(self, ref: WarehouseRef, context: WriteContext | None) -> Table:
        from query.tables.opening import ServerCatalog

        return ServerCatalog(self, self.catalog.state(ref), context).load_table(())

    def exists_now(self) -> bool:
        return self._exists(WarehouseRef(self.warehouse.name))

    def exists_at(self, number: int) -> bool:
        return self._exists(WarehouseRef(self.warehouse.name, at=str(number)))

    def _exists(self, ref: WarehouseRef) -> bool:
        state = self.catalog.state(ref)
        entry = state.entry(self.identifier.namespace.key, self.identifier.name)
        return entry is not None and entry.kind == "table"


class TableOpener:
    """Opens tables for requests. There is one for each server process; its file systems are shared."""

    def __init__(self, catalog: Catalog, landing: LandingTables | None, io_properties: IoProperties) -> None:
        self._catalog = catalog
        self._landing = landing
        self._io_properties = io_properties
        self._ios: dict[tuple[str, str], WarehouseFileIO] = {}

    def access(
        self, warehouse: str, identifier: Identifier, context: WriteContext | None = None
    ) -> TableAccess:
        from query.tables.opening import WarehouseFileIO

        found = self._catalog.warehouse(warehouse)
        key = (found.name, found.root)
        if key not in self._ios:
            self._ios[key] = WarehouseFileIO(found, self._io_properties(found.root))
        return TableAccess(self._catalog, found, identifier, self._ios[key], self._landing, context)
