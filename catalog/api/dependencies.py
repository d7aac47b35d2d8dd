"""Dependencies of the routes: the catalog, the caller, the warehouse state, names, the body, a write slot.

A handler declares them in this order: catalog, state, names, body, write context, slot. FastAPI resolves them
in the order of the declaration, so that a request is refused with 401, 404 or 403 before anything else about
it is checked. A dependency that reads SQL is `def` and runs in a thread; one that only parses is `async def`.

Every 403 for a missing role is raised here: `writer_state`, `_require_role` and `server_admin`. A warehouse
in which the caller has no role is reported as missing (404). The same holds for a transaction that another
principal opened: it belongs to that principal and to the administrators of the warehouse.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Annotated, Any
from urllib.parse import parse_qsl, unquote

import anyio
import orjson
from fastapi import Depends, Header, Path, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.requests import HTTPConnection

from catalog.errors import (
    CatalogError,
    CommitFailed,
    Forbidden,
    Invalid,
    NoSuchTransaction,
    NoSuchWarehouse,
    Unavailable,
)
from catalog.models import EVERY_WAREHOUSE, Caller, IdempotencyRecord, Role, Transaction
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
INLINE_BYTES_MAX = 64 * 1024  # a larger body is parsed and hashed in a thread

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}").fullmatch


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


def get_caller(request: Request) -> Caller:
    """The caller; NotAuthorized without a valid token. The access log reads its name from the scope."""
    given = request.headers.getlist("authorization")
    if len(given) > 1:
        raise Invalid("The request has more than one Authorization header")
    caller: Caller = request.app.state.identity.identify(given[0] if given else None)
    request.scope["calve.caller"] = caller.name
    return caller


CatalogDep = Annotated[Catalog, Depends(get_catalog)]
CallerDep = Annotated[Caller, Depends(get_caller)]


# A warehouse by its prefix: the current state, a past moment or an open transaction


def visible_role(caller: Caller, warehouse: str) -> Role:
    role = caller.role(warehouse)
    if role is None:
        raise NoSuchWarehouse(f"Warehouse does not exist: {warehouse}")
    return role


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
    _ = state.warehouse  # it is read lazily: without this a missing warehouse would have empty lists
    return state


def reader_state(catalog: CatalogDep, caller: CallerDep, prefix: str) -> WarehouseState:
    try:
        return state_for(catalog, caller, warehouse_ref(unquote(prefix)))
    except CommitFailed as error:  # to a reader, a closed transaction does not exist
        raise NoSuchWarehouse(error.message) from error


def writer_state(catalog: CatalogDep, caller: CallerDep, prefix: str) -> WarehouseState:
    """As `reader_state`, for a caller with the role writer. A closed transaction is a conflict: 409."""
    ref = warehouse_ref(unquote(prefix))
    state = state_for(catalog, caller, ref)
    if visible_role(caller, ref.name) < Role.WRITER:
        raise Forbidden(f"{caller.name} may read {ref.name} but not change it: that requires the role writer")
    return state


ReaderState = Annotated[WarehouseState, Depends(reader_state)]
WriterState = Annotated[WarehouseState, Depends(writer_state)]


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


async def get_table(namespace: NamespaceDep, table: TableSegment) -> Identifier:
    return Identifier(namespace, decode_segment(table))


async def get_view(namespace: NamespaceDep, view: ViewSegment) -> Identifier:
    return Identifier(namespace, decode_segment(view))


TableDep = Annotated[Identifier, Depends(get_table)]
ViewDep = Annotated[Identifier, Depends(get_view)]


def raw_query(request: Request, name: str) -> str:
    """The value of a query parameter, still percent-encoded; empty if it is missing."""
    query: str = request.scope["query_string"].decode("latin-1")
    pairs = (part.partition("=") for part in query.split("&"))
    return {key: value for key, _, value in pairs}.get(name, "")


# The body


async def json_body(request: Request, _caller: CallerDep) -> dict[str, Any]:
    """The body as an object. It is read after the caller is known.

    orjson is strict: no NaN, no numbers beyond double, no broken UTF-8, limited nesting.
    """
    body = await request.body()
    if len(body) > INLINE_BYTES_MAX:
        return await run_in_threadpool(_parse_object, body)
    return _parse_object(body)


def _parse_object(body: bytes) -> dict[str, Any]:
    if not body:
        raise Invalid("The request needs a JSON body")
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Invalid(f"The request body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise Invalid("The request body must be a JSON object")
    return value


JsonBody = Annotated[dict[str, Any], Depends(json_body)]


# Writes

IdempotencyKey = Annotated[str | None, Header(alias="Idempotency-Key")]


async def write_context_without_key(request: Request, caller: CallerDep) -> WriteContext:
    """The principal and the deadline of a write."""
    return WriteContext(caller.name, deadline_s=request.scope.get("calve.deadline_s"))


WriteContextWithoutKey = Annotated[WriteContext, Depends(write_context_without_key)]


async def write_context(
    request: Request,
    catalog: CatalogDep,
    state: WriterState,
    context: WriteContextWithoutKey,
    key: IdempotencyKey = None,
) -> WriteContext:
    """As `write_context_without_key`, with the record for the Idempotency-Key of the request."""
    if key is None:
        return context
    if _UUID(key) is None:
        raise Invalid("Idempotency-Key must be a UUID of 36 characters")
    body = await request.body()
    query: bytes = request.scope["query_string"]
    record = IdempotencyRecord(
        principal=context.principal,
        operation=request.scope["route"].operation_id,
        target=f"{state.warehouse.name}:{_path_hash(request)}",
        key=key.lower(),
        body_hash=await run_in_threadpool(_body_hash, body, query)
        if len(body) > INLINE_BYTES_MAX
        else _body_hash(body, query),
        expires_ms=catalog.now_ms() + catalog.limits.idempotency_lifetime_s * 1000,
    )
    return replace(context, record=record)


def _path_hash(request: Request) -> str:
    """A hash, because a path can be longer than an index entry."""
    return hashlib.blake2b("/".join(request.path_params.values()).encode(), digest_size=16).hexdigest()


def _body_hash(body: bytes, query: bytes) -> str:
    return hashlib.sha256(body + b"\0" + query).hexdigest()


WriteContextDep = Annotated[WriteContext, Depends(write_context)]


async def write_slot(request: Request) -> AsyncIterator[None]:
    """Wait on the event loop for one of `WRITERS_MAX` slots. 503 shortly before the deadline of the request.

    A request that is refused here is not executed later.
    """
    slots: anyio.CapacityLimiter = request.app.state.write_slots
    deadline_s = request.scope.get("calve.deadline_s")
    wait_s = None if deadline_s is None else deadline_s - DEADLINE_MARGIN_S - time.monotonic()
    borrower = object()
    try:
        with anyio.fail_after(wait_s):
            await slots.acquire_on_behalf_of(borrower)
    except TimeoutError:
        raise Unavailable(
            "Too many writes are waiting. This one has not been carried out: send it again"
        ) from None
    try:
        yield
    finally:
        slots.release_on_behalf_of(borrower)


async def commit_turn(request: Request, table: TableDep) -> AsyncIterator[None]:
    """The turn of this client among those that commit to one contended table (`app.state.commit_queue`)."""
    queue = request.app.state.commit_queue
    if queue is None:
        yield
        return
    key = (request.path_params["prefix"], table.namespace.key, table.name)
    client = request.scope.get("client")
    await queue.enter(key, client)
    lost = False
    try:
        yield
    except CatalogError as error:
        lost = error.status == 409
        raise
    finally:
        await queue.leave(key, client, lost=lost)


# Both end with the handler and not with the response: a client that reads slowly must not hold a slot.
WriteSlot = Annotated[None, Depends(write_slot, scope="function")]
CommitTurn = Annotated[None, Depends(commit_turn, scope="function")]


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
