"""Warehouses: each has its own storage root. A warehouse can be dropped only when it is empty."""

from __future__ import annotations

from catalog.errors import Conflict, Invalid
from catalog.locations import Location
from catalog.models import Warehouse
from catalog.names import check_warehouse_name
from catalog.services.catalog import Catalog

MAIN = "main"


def ensure_main(catalog: Catalog, root: str) -> Warehouse:
    """The warehouse `main`, created at the first start. Its root cannot change afterwards."""
    found = catalog.warehouses.get(MAIN)
    if found is None:
        return catalog.warehouses.create(MAIN, Location.parse(root), catalog.now_ms())
    if Location.parse(found.root) != Location.parse(root):
        raise Conflict(
            f"the warehouse main lies at {found.root}, but the settings say {root}: "
            "set warehouse_root back, or use another database"
        )
    return found


def create(catalog: Catalog, name: object, root: str | None) -> Warehouse:
    """Create a warehouse. Its root is probed first, so that a wrong root is reported now."""
    checked = check_warehouse_name(name)
    location = Location.parse(root if root is not None else _default_root(catalog, checked))
    if not location.segments and location.scheme == "file":
        raise Invalid("The root of the file system cannot be a warehouse")
    catalog.warehouses.require_available(checked, location)
    catalog.files.probe(location.text)
    return catalog.warehouses.create(checked, location, catalog.now_ms())


def drop(catalog: Catalog, name: object) -> None:
    checked = check_warehouse_name(name)
    if checked == MAIN:
        raise Conflict("The warehouse main cannot be dropped: it is meant where a client names none")
    catalog.warehouses.delete(checked)


def _default_root(catalog: Catalog, name: str) -> str:
    main = Location.parse(catalog.warehouse(MAIN).root)
    if not main.segments:
        raise Invalid(f"Give a root: there is no place beside {main.text}")
    return f"{main.text.rstrip('/')}-{name}"
