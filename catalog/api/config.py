"""`GET /v1/config`: the prefix of a warehouse, the operations of the server, and storage properties."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from catalog.api import spec
from catalog.api.context import state_for, visible_role
from catalog.api.dependencies import CallerDep, CatalogDep
from catalog.api.responses import json_response
from catalog.models import Caller
from catalog.names import WarehouseRef, warehouse_ref
from catalog.services.catalog import Catalog

DEFAULT_WAREHOUSE = "main"
MOMENT_HEADER = "Calve-Moment"  # the number of the moment that a response shows

router = APIRouter(tags=["Configuration API"])


@router.get(
    "/v1/config",
    operation_id="getConfig",
    summary="What a client must know before its first call",
    **spec.operation("CatalogConfigResponse", errors=spec.NO_WAREHOUSE, parameters=("warehouse",)),
)
def get_config(
    request: Request,
    catalog: CatalogDep,
    caller: CallerDep,
    warehouse: Annotated[str, Query()] = "",
) -> Response:
    ref = _warehouse_ref(catalog, caller, warehouse or DEFAULT_WAREHOUSE)
    visible_role(caller, ref.name)
    pinned = _pinned(catalog, caller, ref)
    prefix = str(pinned)
    properties: dict[str, Any] = dict(catalog.client_properties(catalog.warehouse(ref.name).root))
    if pinned.at is not None:
        # A request between two kept moments gets the earlier one, and is told so.
        properties |= {"calve.moment.requested": str(ref.at), "calve.moment.number": str(pinned.at)}
    overrides = {"prefix": prefix, "namespace-separator": request.app.state.encoded_separator}
    response = json_response(
        {
            "defaults": properties,
            "overrides": overrides,
            "endpoints": spec.endpoints(request.app.routes),
            "idempotency-key-lifetime": f"PT{catalog.limits.idempotency_lifetime_s}S",
        }
    )
    if pinned.at is not None:
        response.headers[MOMENT_HEADER] = str(pinned.at)
    return response


def _warehouse_ref(catalog: Catalog, caller: Caller, text: str) -> WarehouseRef:
    """A client names a warehouse by its name or by its storage root."""
    for warehouse in catalog.warehouses.all() if "/" in text else []:
        if caller.role(warehouse.name) is not None and text.rstrip("/") == warehouse.root.rstrip("/"):
            return WarehouseRef(warehouse.name)
    return warehouse_ref(text)


def _pinned(catalog: Catalog, caller: Caller, ref: WarehouseRef) -> WarehouseRef:
    """Resolve a moment to a number once, so that a client reads all tables as of one number, and keep that
    moment for the client.
    """
    if ref.at is not None:
        return WarehouseRef(ref.name, at=str(catalog.pin(ref)))
    if ref.transaction is not None:
        state_for(catalog, caller, ref)
    return ref
