"""The context of a request: caller, role, warehouse state, names, body, write slot. `Write` has all of them,
for a route that changes tables, views or namespaces.

A handler declares `WriteDep` first. The caller and its role are checked on the event loop. The state is
resolved and the body is parsed in the thread of the handler. FastAPI resolves the dependencies of a
dependency again for each parameter, and starts a thread for each `def`. So these have no dependencies of
their own: that took a quarter of the processor time of a commit. The other routes use api/dependencies.py.

Every 403 for a missing role is raised in `require_writer` here, and in `_require_role` and `server_admin` of
api/dependencies.py. A warehouse in which the caller has no role is reported as missing (404). The same holds
for a transaction that another principal opened: it belongs to that principal and to the administrators of
the warehouse.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cached_property
from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qsl, unquote

import anyio
import orjson
from fastapi import Depends, Path, Request
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
from catalog.identity.open import ANONYMOUS, OpenIdentity
from catalog.models import Caller, IdempotencyRecord, Role, Transaction
from catalog.names import (
    Identifier,
    Namespace,
    WarehouseRef,
    decode_segment,
    namespace_from_segment,
    warehouse_ref,
)
from catalog.services import transactions
from catalog.services.catalog import Catalog
from catalog.services.warehouse_state import TransactionState, WarehouseState
from catalog.services.writes import WriteContext, run_once

WRITERS_MAX = 16  # of AnyIO's 40 threads: reads continue while writes wait for storage
DEADLINE_MARGIN_S = 0.1  # a 503 (not executed) must be sent before the deadline's 504 (unknown)
QUERY_PARAMETERS_MAX = 50
T = TypeVar("T")
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}").fullmatch


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


# The caller and its rights


def identify(request: Request) -> Caller:
    """The caller; NotAuthorized without a valid token. The access log reads its name from the scope."""
    given = request.headers.getlist("authorization")
    if len(given) > 1:
        raise Invalid("The request has more than one Authorization header")
    caller: Caller = request.app.state.identity.identify(given[0] if given else None)
    request.scope["calve.caller"] = caller.name
    return caller


async def get_caller(request: Request) -> Caller:
    """As `identify`; in a thread if that reads SQL."""
    if isinstance(request.app.state.identity, OpenIdentity) and "authorization" not in request.headers:
        request.scope["calve.caller"] = ANONYMOUS.name
        return ANONYMOUS
    return await run_in_threadpool(identify, request)


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


# Names in the path. The middleware leaves segments undecoded, because a name may contain a slash.

NamespaceSegment = Annotated[
    str, Path(description="Levels of the namespace, joined with %1F or the separator of `/v1/config`")
]
TableSegment = Annotated[str, Path(description="The name of a table, percent-encoded")]


def parse_namespace(request: Request, raw: str) -> Namespace:
    return namespace_from_segment(raw, request.app.state.separator)


async def get_table(request: Request, namespace: NamespaceSegment, table: TableSegment) -> Identifier:
    return Identifier(parse_namespace(request, namespace), decode_segment(table))


# The body, and a slot for a write. As in Iceberg's own parsers, null means the same as a missing field.


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


def list_field(body: dict[str, Any], name: str) -> list[Any]:
    value = body.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise Invalid(f"{name} must be a list")
    return value


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


# A write


class Write:
    """A write request: the catalog, the state to change, the context, and the body.

    The state is resolved and the body is parsed on first use, in the thread of the handler.
    """

    def __init__(
        self, request: Request, caller: Caller, ref: WarehouseRef, body: bytes, key: str | None
    ) -> None:
        self.catalog: Catalog = request.app.state.catalog
        self.caller = caller
        self._request = request
        self._ref = ref
        self._body = body
        self._key = key

    @cached_property
    def state(self) -> WarehouseState:
        """CommitFailed (409) if it is a transaction that is closed."""
        return state_for(self.catalog, self.caller, self._ref)

    @cached_property
    def context(self) -> WriteContext:
        record = None if self._key is None else self._record(self._key)
        return WriteContext(self.caller.name, record, self._request.scope.get("calve.deadline_s"))

    def json(self) -> dict[str, Any]:
        """The body as an object. orjson is strict: no NaN, no numbers beyond double, no broken UTF-8,
        limited nesting.
        """
        return parse_object(self._body)

    def run_once(self, work: Callable[[], T], restore: Callable[[Any], T]) -> T:
        """As `services.writes.run_once`, for the Idempotency-Key of the request."""
        _ = self.state  # a refusal by the state is not saved with the key
        return run_once(self.catalog, self.context, work, restore)

    def _record(self, key: str) -> IdempotencyRecord:
        request = self._request
        # The hash of the path, because a path can be longer than an index entry.
        path = hashlib.blake2b("/".join(request.path_params.values()).encode(), digest_size=16).hexdigest()
        query: bytes = request.scope["query_string"]
        return IdempotencyRecord(
            principal=self.caller.name,
            operation=request.scope["route"].operation_id,
            target=f"{self._ref.name}:{path}",
            key=key.lower(),
            body_hash=hashlib.sha256(self._body + b"\0" + query).hexdigest(),
            expires_ms=self.catalog.now_ms() + self.catalog.limits.idempotency_lifetime_s * 1000,
        )


async def _begin(request: Request, *, takes_key: bool = True) -> Write:
    """The write of a caller that has the role writer, with a valid Idempotency-Key or none."""
    caller = await get_caller(request)
    ref = warehouse_ref(unquote(request.path_params["prefix"]))
    require_writer(caller, ref.name)
    key = request.headers.get("idempotency-key") if takes_key else None
    if key is not None and _UUID(key) is None:
        raise Invalid("Idempotency-Key must be a UUID of 36 characters")
    return Write(request, caller, ref, await request.body(), key)


async def commit_turn(request: Request) -> AsyncIterator[None]:
    """The turn of this client among those that commit to one contended table (`app.state.commit_queue`)."""
    queue = request.app.state.commit_queue
    if queue is None:
        yield
        return
    key, client = tuple(request.path_params.values()), request.scope.get("client")
    if key in queue.contended:
        await queue.enter(key, client)
    lost = False
    try:
        yield
    except CatalogError as error:
        lost = error.status == 409
        raise
    finally:
        if lost or key in queue.contended:
            await queue.leave(key, client, lost=lost)


_slot, _turn = asynccontextmanager(write_slot), asynccontextmanager(commit_turn)


async def begin_write(request: Request) -> AsyncIterator[Write]:
    write = await _begin(request)
    async with _slot(request):
        yield write


async def begin_write_without_key(request: Request) -> AsyncIterator[Write]:
    """As `begin_write`, for an operation that ignores the Idempotency-Key."""
    write = await _begin(request, takes_key=False)
    async with _slot(request):
        yield write


async def begin_commit(request: Request) -> AsyncIterator[Write]:
    """As `begin_write`, in the client's turn. A client that waits for its turn holds no slot."""
    write = await _begin(request)
    async with _turn(request), _slot(request):
        yield write


# They end with the handler and not with the response: a client that reads slowly must not hold a slot.
WriteDep = Annotated[Write, Depends(begin_write, scope="function")]
WriteWithoutKeyDep = Annotated[Write, Depends(begin_write_without_key, scope="function")]
CommitDep = Annotated[Write, Depends(begin_commit, scope="function")]
