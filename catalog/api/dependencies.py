"""Dependencies of the routes: the catalog, the caller, the warehouse state, names, the body, a write slot.

FastAPI resolves them in the order of their declaration, so the caller and the state come first: a request is
refused with 401, 404 or 403 before anything else about it is checked. A dependency that reads SQL is `def`
and runs in a thread; one that only parses is `async def`. Routes that change tables use api/writes.py.

Every 403 for a missing role is raised in `require_writer`, `_require_role` and `server_admin`. A warehouse in
which the caller has no role is reported as missing (404). The same holds for a transaction that another
principal opened: it belongs to that principal and to the administrators of the warehouse.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Annotated, Any
from urllib.parse import parse_qsl, unquote

import anyio
import orjson
from fastapi import Depends, Path, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.requests import HTTPConnection

from catalog.errors import (
    CommitFailed,
    Forbidden,
    Invalid,
    NoSuchTransaction,
    NoSuchWarehouse,
    Unavailable,
)
from catalog.identity.open import OpenIdentity
from catalog.models import EVERY_WAREHOUSE, Caller, Role, Transaction
from catalog.names import (
    Identifier,
    Namespace,
    WarehouseRef,
    check_transaction_name,
    check_warehouse_name,
    decode_segment,
    namespace_from_segment,
    warehouse_ref,
)
from catalog.services import transactions
from catalog.services.catalog import Catalog
from catalog.services.warehouse_state import TransactionState, WarehouseState
from catalog.services.writes import WriteContext

WRITERS_MAX = 16  # of AnyIO's 40 threads: reads continue while writes wait for storage
DEADLINE_MARGIN_S = 0.1  # a 503 (not executed) must be sent before the deadline's 504 (unknown)
QUERY_PARAMETERS_MAX = 50


# Every request


async def check_query(request: HTTPConnection) -> None:
    """Refuse a query string that is not UTF-8 or has too many parameters, before any of them is used."""
    try:
        parse_qsl(
            request.scope["query_string"].decode("ascii"),
            keep_blank_values=True,
            max_num_fields=QUERY_PARAMETERS_MAX,
            errors="strict",
        )
    except ValueError as error:
        raise Invalid(
            f"The query string must be percent-encoded UTF-8 of at most {QUERY_PARAMETERS_MAX} parameters"
        ) from error


# The catalog and the caller


async def get_catalog(request: Request) -> Catalog:
    catalog: Catalog = request.app.state.catalog
    return catalog


def _identify(request: Request) -> Caller:
    """The caller; NotAuthorized without a valid token. The access log reads its name from the scope."""
    given = request.headers.getlist("authorization")
    if len(given) > 1:
        raise Invalid("The request has more than one Authorization header")
    caller: Caller = request.app.state.identity.identify(given[0] if given else None)
    request.scope["calve.caller"] = caller.name
    return caller


async def get_caller(request: Request) -> Caller:
    """As `_identify`; in a thread if that reads SQL."""
    if isinstance(request.app.state.identity, OpenIdentity):
        return _identify(request)
    return await run_in_threadpool(_identify, request)


CatalogDep = Annotated[Catalog, Depends(get_catalog)]
CallerDep = Annotated[Caller, Depends(get_caller)]


# A warehouse by its prefix: the current state, a past moment or an open transaction


def visible_role(caller: Caller, warehouse: str) -> Role:
    role = caller.role(warehouse)
    if role is None:
        raise NoSuchWarehouse(f"Warehouse does not exist: {warehouse}")
    return role


def require_writer(caller: Caller, warehouse: str) -> None:
    if visible_role(caller, warehouse) < Role.WRITER:
        raise Forbidden(
            f"{caller.name} may read {warehouse} but not change it: that requires the role writer"
        )


def is_visible(caller: Caller, transaction: Transaction) -> bool:
    """Whether the caller may read, write, publish and abort the transaction."""
    return transaction.principal == caller.name or caller.role(transaction.warehouse) == Role.ADMIN


def refuse_invisible(caller: Caller, transaction: Transaction | None) -> None:
    if transaction is not None and not is_visible(caller, transaction):
        raise NoSuchTransaction(f"Transaction does not exist: {transaction.name}")


def own_transaction(catalog: Catalog, caller: Caller, warehouse: str, name: str) -> Transaction:
    """The newest transaction of that name. NoSuchTransaction if it belongs to another principal."""
    found = transactions.newest(catalog, warehouse, name)
    refuse_invisible(caller, found)
    return found


def state_for(catalog: Catalog, caller: Caller, ref: WarehouseRef) -> WarehouseState:
    """The state that the reference selects. CommitFailed if it is a transaction that is closed."""
    visible_role(caller, ref.name)
    try:
        state = catalog.state(ref)
    except CommitFailed:
        own_transaction(catalog, caller, ref.name, str(ref.transaction))
        raise
    if isinstance(state, TransactionState):
        refuse_invisible(caller, state.transaction)
    return state


def reader_state(request: Request, prefix: str) -> WarehouseState:
    try:
        state = state_for(request.app.state.catalog, _identify(request), warehouse_ref(unquote(prefix)))
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


# Names in the path. The middleware leaves segments undecoded, because a name may contain a slash.

NamespaceSegment = Annotated[
    str, Path(description="Levels of the namespace, joined with %1F or the separator of `/v1/config`")
]
TableSegment = Annotated[str, Path(description="The name of a table, percent-encoded")]
ViewSegment = Annotated[str, Path(description="The name of a view, percent-encoded")]


def parse_namespace(request: Request, raw: str) -> Namespace:
    return namespace_from_segment(raw, request.app.state.separator)


async def get_namespace(request: Request, namespace: NamespaceSegment) -> Namespace:
    return parse_namespace(request, namespace)


NamespaceDep = Annotated[Namespace, Depends(get_namespace)]


async def get_table(request: Request, namespace: NamespaceSegment, table: TableSegment) -> Identifier:
    return Identifier(parse_namespace(request, namespace), decode_segment(table))


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


def parse_object(body: bytes) -> dict[str, Any]:
    if not body:
        raise Invalid("The request needs a JSON body")
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Invalid(f"The request body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise Invalid("The request body must be a JSON object")
    return value


async def json_body(request: Request, _caller: CallerDep) -> dict[str, Any]:
    """The body of a small request as an object. It is read after the caller is known."""
    return parse_object(await request.body())


JsonBody = Annotated[dict[str, Any], Depends(json_body)]


async def write_slot(request: Request) -> AsyncIterator[None]:
    """Wait on the event loop for one of `WRITERS_MAX` slots. 503 shortly before the deadline of the request.

    A request that is refused here is not executed later.
    """
    slots: anyio.CapacityLimiter = request.app.state.write_slots
    borrower = object()
    try:
        slots.acquire_on_behalf_of_nowait(borrower)
    except anyio.WouldBlock:
        await _wait_for_slot(slots, borrower, request.scope.get("calve.deadline_s"))
    try:
        yield
    finally:
        slots.release_on_behalf_of(borrower)


async def _wait_for_slot(slots: anyio.CapacityLimiter, borrower: object, deadline_s: float | None) -> None:
    wait_s = None if deadline_s is None else deadline_s - DEADLINE_MARGIN_S - time.monotonic()
    try:
        with anyio.fail_after(wait_s):
            await slots.acquire_on_behalf_of(borrower)
    except TimeoutError:
        raise Unavailable(
            "Too many writes are waiting. This one has not been carried out: send it again"
        ) from None


# It ends with the handler and not with the response: a client that reads slowly must not hold a slot.
WriteSlot = Annotated[None, Depends(write_slot, scope="function")]


async def write_context_without_key(request: Request, caller: CallerDep) -> WriteContext:
    """The principal and the deadline of a write below /lake/v1."""
    return WriteContext(caller.name, deadline_s=request.scope.get("calve.deadline_s"))


WriteContextWithoutKey = Annotated[WriteContext, Depends(write_context_without_key)]


# Fields of request bodies. As in Iceberg's own parsers, null means the same as a missing field.


def list_field(body: dict[str, Any], name: str) -> list[Any]:
    value = body.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise Invalid(f"{name} must be a list")
    return value


def boolean_field(body: dict[str, Any], name: str) -> bool:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise Invalid(f"{name} must be true or false")
    return bool(value)
