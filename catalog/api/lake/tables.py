"""Calve's additions to tables: undrop, protection, stored metrics reports."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from catalog.api.dependencies import (
    AdminWarehouse,
    CatalogDep,
    ReaderWarehouse,
    TableDep,
    WriteContextWithoutKey,
    WriterWarehouse,
    WriteSlot,
)
from catalog.api.pagination import INTEGER_MAX, Paged, PageDep
from catalog.errors import Invalid
from catalog.models import Dropped
from catalog.names import Identifier, Namespace, WarehouseRef, check_name, namespace_from_levels
from catalog.services import reports, tables

router = APIRouter(tags=["Tables"])
TABLE = "/{warehouse}/namespaces/{namespace}/tables/{table}"


class DroppedAnswer(BaseModel):
    id: str
    kind: str
    namespace: list[str]
    name: str
    uuid: str
    metadata_location: str = Field(serialization_alias="metadata-location")
    dropped_ms: int = Field(serialization_alias="dropped-ms")
    expires_ms: int = Field(serialization_alias="expires-ms")
    principal: str


class DroppedList(Paged):
    dropped: list[DroppedAnswer]


class UndropRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")
    namespace: list[str] | None = Field(None, description="With name: restore it under another name")
    name: str | None = None


class UndropAnswer(BaseModel):
    kind: str
    namespace: list[str]
    name: str


class Protection(BaseModel):
    model_config = ConfigDict(extra="forbid")
    protected: bool


class ReportAnswer(BaseModel):
    id: int
    received_ms: int = Field(alias="received-ms")
    principal: str
    table_uuid: str = Field(alias="table-uuid")
    report: dict[str, Any]


class ReportList(Paged):
    reports: list[ReportAnswer]


@router.get("/{warehouse}/dropped", operation_id="listDropped", response_model=DroppedList)
def list_dropped(catalog: CatalogDep, warehouse: ReaderWarehouse, page: PageDep) -> Any:
    """Dropped tables and views that can still be restored, newest first."""
    before_ms, before_id = page.after(INTEGER_MAX, "")
    rows = catalog.records.dropped_before(warehouse, catalog.now_ms(), before_ms, before_id, page.rows_max)
    shown, token = page.cut(rows, lambda found: (found.dropped_ms, found.id))
    return {"dropped": [_dropped(found) for found in shown], "next_page_token": token}


@router.post("/{warehouse}/dropped/{dropped_id}/undrop", operation_id="undrop", response_model=UndropAnswer)
def undrop(
    catalog: CatalogDep,
    warehouse: WriterWarehouse,
    dropped_id: str,
    context: WriteContextWithoutKey,
    _: WriteSlot,
    body: UndropRequest | None = None,
) -> Any:
    """Restore a dropped table or view, under its own name or another."""
    target = None
    if body is not None and (body.name is not None or body.namespace is not None):
        if body.name is None or body.namespace is None:
            raise Invalid("Give both namespace and name, or neither")
        target = Identifier(namespace_from_levels(body.namespace), check_name(body.name, "table"))
    state = catalog.state(WarehouseRef(warehouse))
    entry = tables.undrop(catalog, state, context, dropped_id, target)
    return {"kind": entry.kind, "namespace": entry.namespace.split("\x1f"), "name": entry.name}


@router.get(TABLE + "/protection", operation_id="loadProtection", response_model=Protection)
def load_protection(catalog: CatalogDep, warehouse: ReaderWarehouse, identifier: TableDep) -> Any:
    """Whether a table is protected from being dropped."""
    return {"protected": tables.require(catalog.state(WarehouseRef(warehouse)), identifier).protected}


@router.put(TABLE + "/protection", operation_id="setProtection", response_model=Protection)
def set_protection(
    catalog: CatalogDep, warehouse: AdminWarehouse, identifier: TableDep, body: Protection, _: WriteSlot
) -> Any:
    """Protect a table from drop, purge, unregister and overwrite, or remove the protection."""
    tables.protect(catalog, catalog.state(WarehouseRef(warehouse)), identifier, body.protected)
    return body


@router.get(TABLE + "/metrics", operation_id="listReports", response_model=ReportList)
def list_reports(
    catalog: CatalogDep,
    warehouse: ReaderWarehouse,
    identifier: TableDep,
    page: PageDep,
) -> Any:
    """Scan and commit reports that engines sent, newest first."""
    (before,) = page.after(INTEGER_MAX)
    state = catalog.state(WarehouseRef(warehouse))
    rows = reports.listed(catalog, state, identifier, before, page.rows_max)
    shown, token = page.cut(rows, lambda row: (row["id"],))
    return {"reports": shown, "next_page_token": token}


def _dropped(found: Dropped) -> dict[str, Any]:
    entry = found.entry
    return {
        "id": found.id,
        "kind": entry.kind,
        "namespace": list(Namespace.from_key(entry.namespace).levels),
        "name": entry.name,
        "uuid": entry.uuid,
        "metadata_location": entry.metadata_location,
        "dropped_ms": found.dropped_ms,
        "expires_ms": found.expires_ms,
        "principal": found.principal,
    }
