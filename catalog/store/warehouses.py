"""Warehouses: name and storage root. Roots never overlap, because each warehouse is a tenant."""

from __future__ import annotations

import sqlalchemy as sa

from catalog.errors import AlreadyExists, Conflict, Invalid, NoSuchWarehouse
from catalog.locations import Location
from catalog.models import Warehouse
from catalog.store.database import Database
from catalog.store.schema import (
    dropped,
    entries,
    expired_files,
    grants,
    heads,
    history,
    idempotency,
    locations,
    maintenance,
    maintenance_policies,
    maintenance_tables,
    moments,
    reports,
    staged,
    transactions,
    warehouses,
    webhooks,
)

READ_WAREHOUSE = sa.select(warehouses.c.root, warehouses.c.created_ms).where(
    warehouses.c.warehouse == sa.bindparam("warehouse")
)
READ_WAREHOUSES = sa.select(warehouses.c.warehouse, warehouses.c.root, warehouses.c.created_ms).order_by(
    warehouses.c.warehouse
)
# The tables whose rows are deleted with a warehouse.
_OF_WAREHOUSE = (
    grants,
    transactions,
    dropped,
    reports,
    history,
    locations,
    moments,
    maintenance,
    maintenance_policies,
    maintenance_tables,
    expired_files,
    webhooks,
    heads,
    warehouses,
)


class WarehouseStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, name: str) -> Warehouse | None:
        row = self._database.fetch_one(READ_WAREHOUSE, {"warehouse": name})
        return Warehouse(name, row[0], row[1]) if row else None

    def require(self, name: str) -> Warehouse:
        found = self.get(name)
        if found is None:
            raise NoSuchWarehouse(f"Warehouse does not exist: {name}")
        return found

    def all(self) -> list[Warehouse]:
        return [Warehouse(*row) for row in self._database.fetch_all(READ_WAREHOUSES, {})]

    def create(self, name: str, root: Location, now_ms: int) -> Warehouse:
        """Create a warehouse. Raises AlreadyExists for the name, and Invalid if its root overlaps another
        one.
        """

        def work(connection: sa.Connection) -> Warehouse:
            if connection.dialect.name == "postgresql":
                connection.execute(sa.text("LOCK TABLE warehouses IN SHARE ROW EXCLUSIVE MODE"))
            for row in connection.execute(sa.select(warehouses.c.warehouse, warehouses.c.root)).all():
                if row[0] == name:
                    raise AlreadyExists(f"Warehouse already exists: {name}")
                if root.overlaps(Location.parse(row[1])):
                    raise Invalid(f"The root {root.text} overlaps the root of another warehouse")
            connection.execute(
                sa.insert(warehouses).values(warehouse=name, root=root.text, created_ms=now_ms)
            )
            connection.execute(sa.insert(heads).values(warehouse=name, number=0, time_ms=now_ms))
            return Warehouse(name, root.text, now_ms)

        return self._database.write(work)

    def require_available(self, name: str, root: Location) -> None:
        """Raises AlreadyExists for the name, and Invalid if the root overlaps another one."""
        for known in self.all():
            if known.name == name:
                raise AlreadyExists(f"Warehouse already exists: {name}")
            if root.overlaps(Location.parse(known.root)):
                raise Invalid(f"The root {root.text} overlaps the root of another warehouse")

    def delete(self, name: str) -> None:
        """Delete an empty warehouse with its history. Its files stay."""

        def work(connection: sa.Connection) -> None:
            found = connection.execute(
                sa.select(warehouses.c.warehouse).where(warehouses.c.warehouse == name).with_for_update()
            ).first()
            if found is None:
                raise NoSuchWarehouse(f"Warehouse does not exist: {name}")
            if connection.execute(
                sa.select(entries.c.name).where(entries.c.warehouse == name).limit(1)
            ).first():
                raise Conflict(f"Warehouse {name} is not empty: drop its namespaces first")
            transaction_ids = sa.select(transactions.c.id).where(transactions.c.warehouse == name)
            connection.execute(sa.delete(staged).where(staged.c.transaction_id.in_(transaction_ids)))
            connection.execute(sa.delete(idempotency).where(idempotency.c.target.startswith(f"{name}:")))
            for table in _OF_WAREHOUSE:
                connection.execute(sa.delete(table).where(table.c.warehouse == name))

        self._database.write(work)
