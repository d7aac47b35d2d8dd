"""`GET /v1/config`: which prefix a warehouse has, what works here, and where its files are."""

from __future__ import annotations

from typing import Any

from catalog.api.calls import Answer, Call, json_answer
from catalog.api.operations import endpoint_strings
from catalog.errors import NoSuchWarehouse
from catalog.identity.roles import Caller
from catalog.names import WarehouseRef, warehouse_ref
from catalog.service.catalog import Catalog

DEFAULT_WAREHOUSE = "main"


def asked_for(call: Call) -> WarehouseRef:
    """The warehouse a client names, or `main` where it names none. A storage root names its warehouse too."""
    text = call.query.get("warehouse") or DEFAULT_WAREHOUSE
    for warehouse in call.catalog.warehouses.all() if "/" in text else []:
        visible = call.caller is not None and call.caller.role(warehouse.name) is not None
        if visible and text.rstrip("/") == warehouse.root.rstrip("/"):
            return WarehouseRef(warehouse.name)
    return warehouse_ref(text)


def get_config(call: Call, separator: str) -> Answer:
    ref = asked_for(call)
    _require_visible(call.caller, ref)
    prefix = str(_pinned(call.catalog, ref))
    warehouse = call.catalog.warehouse(ref.name)
    overrides = {"prefix": prefix, "namespace-separator": separator}
    defaults: dict[str, Any] = dict(call.catalog.client_properties(warehouse.root))
    lifetime = f"PT{call.catalog.limits.idempotency_lifetime_s}S"
    return json_answer(
        {
            "defaults": defaults,
            "overrides": overrides,
            "endpoints": endpoint_strings(),
            "idempotency-key-lifetime": lifetime,
        }
    )


def _require_visible(caller: Caller | None, ref: WarehouseRef) -> None:
    if caller is None or caller.role(ref.name) is None:
        raise NoSuchWarehouse(f"Warehouse does not exist: {ref.name}")


def _pinned(catalog: Catalog, ref: WarehouseRef) -> WarehouseRef:
    """A moment becomes a number once, here, so that all tables of a client belong to one instant."""
    if ref.at is not None:
        return WarehouseRef(ref.name, at=str(catalog.resolve(ref)))
    if ref.transaction is not None:
        catalog.open_transaction(ref.name, ref.transaction)
    return ref
