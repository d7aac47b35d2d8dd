"""Warehouses. Each is a tenant."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from catalog.api.dependencies import CallerDep, CatalogDep, ReaderWarehouse, ServerAdmin, WriteSlot
from catalog.api.pagination import Paged, PageDep
from catalog.models import Warehouse
from catalog.services import warehouses

router = APIRouter(tags=["Warehouses"])


class WarehouseRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    root: str | None = Field(None, description="Where its tables are; a folder beside main's if omitted")


class WarehouseAnswer(BaseModel):
    name: str
    root: str
    created_ms: int = Field(serialization_alias="created-ms")
    number: int = Field(description="The number of its newest commit")


class WarehouseList(Paged):
    warehouses: list[WarehouseAnswer]


@router.get("/warehouses", operation_id="listWarehouses", response_model=WarehouseList)
def list_warehouses(catalog: CatalogDep, caller: CallerDep, page: PageDep) -> Any:
    """The warehouses in which the caller has a role, by name."""
    (after,) = page.after("")
    behind = [found for found in catalog.warehouses.all() if found.name > after]
    visible = [found for found in behind if caller.role(found.name) is not None]
    shown, token = page.cut(visible, lambda found: (found.name,))
    return {"warehouses": [_answer(catalog, found) for found in shown], "next_page_token": token}


@router.post("/warehouses", operation_id="createWarehouse", response_model=WarehouseAnswer)
def create_warehouse(catalog: CatalogDep, _caller: ServerAdmin, body: WarehouseRequest, _: WriteSlot) -> Any:
    """Create a warehouse with its own storage root."""
    return _answer(catalog, warehouses.create(catalog, body.name, body.root))


@router.get("/warehouses/{warehouse}", operation_id="loadWarehouse", response_model=WarehouseAnswer)
def load_warehouse(catalog: CatalogDep, warehouse: ReaderWarehouse) -> Any:
    """One warehouse."""
    return _answer(catalog, catalog.warehouse(warehouse))


@router.delete("/warehouses/{warehouse}", operation_id="dropWarehouse", status_code=204)
def drop_warehouse(catalog: CatalogDep, _caller: ServerAdmin, warehouse: str, _: WriteSlot) -> None:
    """Drop an empty warehouse. Its files stay."""
    warehouses.drop(catalog, warehouse)


def _answer(catalog: CatalogDep, warehouse: Warehouse) -> dict[str, Any]:
    head = catalog.entries.number(warehouse.name)
    return {
        "name": warehouse.name,
        "root": warehouse.root,
        "created_ms": warehouse.created_ms,
        "number": head[0] if head else 0,
    }
