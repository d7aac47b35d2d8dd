"""Dependencies of the routes, for their signatures: the catalog, the caller, the warehouse, names, the body.

FastAPI resolves them in the order of their declaration, so the caller and the state come first: a request is
refused with 401, 404 or 403 before anything else about it is checked. A dependency that reads SQL is `def`
and runs in a thread; one that only parses is `async def`. Routes that change tables use `WriteDep` of
api/context.py.
"""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import Depends, Path, Request

from catalog.api.context import (
    NamespaceSegment,
    get_caller,
    get_table,
    identify,
    own_transaction,
    parse_namespace,
    parse_object,
    state_for,
    visible_role,
    write_slot,
)
from catalog.errors import CommitFailed, Forbidden, Invalid, NoSuchWarehouse
from catalog.models import EVERY_WAREHOUSE, Caller, Role, Transaction
from catalog.names import (
    Identifier,
    Namespace,
    check_transaction_name,
    check_warehouse_name,
    decode_segment,
    warehouse_ref,
)
from catalog.services.catalog import Catalog
from catalog.services.warehouse_state import WarehouseState
from catalog.services.writes import WriteContext

# The catalog and the caller


async def get_catalog(request: Request) -> Catalog:
    catalog: Catalog = request.app.state.catalog
    return catalog


CatalogDep = Annotated[Catalog, Depends(get_catalog)]
CallerDep = Annotated[Caller, Depends(get_caller)]


# A warehouse by its prefix: the current state, a past moment or an open transaction


def reader_state(request: Request, prefix: str) -> WarehouseState:
    try:
        state = state_for(request.app.state.catalog, identify(request), warehouse_ref(unquote(prefix)))
    except CommitFailed as error:  # to a reader, a closed transaction does not exist
        raise NoSuchWarehouse(error.message) from error
    _ = state.warehouse  # it is read lazily: without this a missing warehouse would have empty lists
    return state


ReaderState = Annotated[WarehouseState, Depends(reader_state)]


# A warehouse by its plain name, below /lake/v1

WarehouseName = Annotated[str, Path(description="The name of a warehouse, such as main")]


def _require_role(caller: Caller, catalog: Catalog, warehouse: str, least: Role) -> str:
    name = check_warehouse_name(warehouse)
    role = visible_role(caller, name)
    catalog.warehouse(name)
    if role < least:
        raise Forbidden(f"{caller.name} needs the role {least} in {name} for this")
    return name


def reader_warehouse(caller: CallerDep, catalog: CatalogDep, warehouse: WarehouseName) -> str:
    return _require_role(caller, catalog, warehouse, Role.READER)


def writer_warehouse(caller: CallerDep, catalog: CatalogDep, warehouse: WarehouseName) -> str:
    return _require_role(caller, catalog, warehouse, Role.WRITER)


def admin_warehouse(caller: CallerDep, catalog: CatalogDep, warehouse: WarehouseName) -> str:
    return _require_role(caller, catalog, warehouse, Role.ADMIN)


async def server_admin(caller: CallerDep) -> Caller:
    if caller.roles.get(EVERY_WAREHOUSE) != Role.ADMIN:
        raise Forbidden(f"{caller.name} needs the role admin for all warehouses for this")
    return caller


ReaderWarehouse = Annotated[str, Depends(reader_warehouse)]
WriterWarehouse = Annotated[str, Depends(writer_warehouse)]
AdminWarehouse = Annotated[str, Depends(admin_warehouse)]
ServerAdmin = Annotated[Caller, Depends(server_admin)]

TransactionName = Annotated[str, Path(alias="name", description="The name of a transaction")]


def reader_transaction(
    catalog: CatalogDep, caller: CallerDep, warehouse: ReaderWarehouse, name: TransactionName
) -> Transaction:
    return own_transaction(catalog, caller, warehouse, check_transaction_name(name))


def writer_transaction(
    catalog: CatalogDep, caller: CallerDep, warehouse: WriterWarehouse, name: TransactionName
) -> Transaction:
    return own_transaction(catalog, caller, warehouse, check_transaction_name(name))


ReaderTransaction = Annotated[Transaction, Depends(reader_transaction)]
WriterTransaction = Annotated[Transaction, Depends(writer_transaction)]


# Names in the path

ViewSegment = Annotated[str, Path(description="The name of a view, percent-encoded")]


async def get_namespace(request: Request, namespace: NamespaceSegment) -> Namespace:
    return parse_namespace(request, namespace)


NamespaceDep = Annotated[Namespace, Depends(get_namespace)]


async def get_view(request: Request, namespace: NamespaceSegment, view: ViewSegment) -> Identifier:
    return Identifier(parse_namespace(request, namespace), decode_segment(view))


TableDep = Annotated[Identifier, Depends(get_table)]
ViewDep = Annotated[Identifier, Depends(get_view)]


def raw_query(request: Request, name: str) -> str:
    """The value of a query parameter, still percent-encoded; empty if it is missing."""
    query: str = request.scope["query_string"].decode("latin-1")
    pairs = (part.partition("=") for part in query.split("&"))
    return {key: value for key, _, value in pairs}.get(name, "")


# The body, and a slot for a write


async def json_body(request: Request, _caller: CallerDep) -> dict[str, Any]:
    """The body of a small request as an object. It is read after the caller is known."""
    return parse_object(await request.body())


JsonBody = Annotated[dict[str, Any], Depends(json_body)]


# It ends with the handler and not with the response: a client that reads slowly must not hold a slot.
WriteSlot = Annotated[None, Depends(write_slot, scope="function")]


async def write_context_without_key(request: Request, caller: CallerDep) -> WriteContext:
    """The principal and the deadline of a write below /lake/v1."""
    return WriteContext(caller.name, deadline_s=request.scope.get("calve.deadline_s"))


WriteContextWithoutKey = Annotated[WriteContext, Depends(write_context_without_key)]


# Fields of request bodies. As in Iceberg's own parsers, null means the same as a missing field.


def boolean_field(body: dict[str, Any], name: str) -> bool:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise Invalid(f"{name} must be true or false")
    return bool(value)
