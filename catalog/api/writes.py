"""Dependencies of the routes that change tables, views and namespaces: one object for each request.

A handler declares `WriteDep` first. The caller and its role are checked on the event loop. The state is
resolved and the body is parsed in the thread of the handler. FastAPI resolves the dependencies of a
dependency again for each parameter, and starts a thread for each `def`. So these have no dependencies of
their own: that took a quarter of the processor time of a commit.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cached_property
from typing import Annotated, Any, TypeVar
from urllib.parse import unquote

from fastapi import Depends, Request

from catalog.api.dependencies import get_caller, parse_object, require_writer, state_for, write_slot
from catalog.errors import CatalogError, Invalid
from catalog.models import Caller, IdempotencyRecord
from catalog.names import WarehouseRef, warehouse_ref
from catalog.services.catalog import Catalog
from catalog.services.warehouse_state import WarehouseState
from catalog.services.writes import WriteContext, run_once

T = TypeVar("T")
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}").fullmatch


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
    await queue.enter(key, client)
    lost = False
    try:
        yield
    except CatalogError as error:
        lost = error.status == 409
        raise
    finally:
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
