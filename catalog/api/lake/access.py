"""Who calls a lake route and with which right, as FastAPI dependencies."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import unquote

from fastapi import Depends, Path, Request

from catalog.api.endpoints import Endpoints
from catalog.errors import Forbidden, NoSuchWarehouse
from catalog.identity.roles import Caller, Role
from catalog.names import Identifier, check_warehouse_name, decode_segment, namespace_from_segment
from catalog.service.catalog import Catalog


def _endpoints(request: Request) -> Endpoints:
    endpoints: Endpoints = request.app.state.endpoints
    return endpoints


def _catalog(endpoints: Annotated[Endpoints, Depends(_endpoints)]) -> Catalog:
    return endpoints.catalog


def _caller(request: Request, endpoints: Annotated[Endpoints, Depends(_endpoints)]) -> Caller:
    """Also tells metrics and the log which operation this is."""
    route = request.scope.get("route")
    request.scope["calve.operation"] = getattr(route, "operation_id", None) or "other"
    caller: Caller = endpoints.identity.identify(request.headers.get("authorization"))
    request.scope["calve.caller"] = caller.name
    return caller


CatalogOf = Annotated[Catalog, Depends(_catalog)]
CallerOf = Annotated[Caller, Depends(_caller)]
WarehouseName = Annotated[str, Path(description="The name of a warehouse, such as main")]
NamespaceSegment = Annotated[
    str, Path(description="Levels of the namespace, joined with %1F or the separator of `/v1/config`")
]
TableSegment = Annotated[str, Path(description="The name of a table, percent-encoded")]


def _require(caller: Caller, catalog: Catalog, warehouse: str, least: Role) -> str:
    """The checked name of a warehouse in which the caller has at least this role."""
    name = check_warehouse_name(warehouse)
    role = caller.role(name)
    if role is None:
        raise NoSuchWarehouse(f"Warehouse does not exist: {name}")
    catalog.warehouse(name)
    if role < least:
        raise Forbidden(f"{caller.name} needs the role {least} in {name} for this")
    return name


def _reading(caller: CallerOf, catalog: CatalogOf, warehouse: WarehouseName) -> str:
    return _require(caller, catalog, warehouse, Role.READER)


def _writing(caller: CallerOf, catalog: CatalogOf, warehouse: WarehouseName) -> str:
    return _require(caller, catalog, warehouse, Role.WRITER)


def _administering(caller: CallerOf, catalog: CatalogOf, warehouse: WarehouseName) -> str:
    return _require(caller, catalog, warehouse, Role.ADMIN)


def _server_admin(caller: CallerOf) -> Caller:
    if caller.roles.get("*") != Role.ADMIN:
        raise Forbidden(f"{caller.name} needs the role admin for all warehouses for this")
    return caller


Readable = Annotated[str, Depends(_reading)]
Writable = Annotated[str, Depends(_writing)]
Administered = Annotated[str, Depends(_administering)]
ServerAdmin = Annotated[Caller, Depends(_server_admin)]


def _identifier(
    endpoints: Annotated[Endpoints, Depends(_endpoints)], namespace: NamespaceSegment, table: TableSegment
) -> Identifier:
    separator = unquote(endpoints.separator)
    return Identifier(namespace_from_segment(namespace, separator), decode_segment(table))


IdentifierOf = Annotated[Identifier, Depends(_identifier)]
