"""The endpoints: from an ASGI request to a handler and back.

Each operation of the spec is one ASGI endpoint on the undecoded path, so that `%2F` inside a name stays
inside it. It reads the body, then performs the call: who is it, which warehouse, may they, the handler, the
error table. Performing is synchronous. It runs in a worker thread, except for reads of the present on SQLite:
those take less time than the way to a thread and back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from typing import Any
from urllib.parse import unquote

import orjson
from starlette.routing import Route

from catalog import timing
from catalog.api import config, namespaces, tables, tokens, views
from catalog.api.calls import JSON, Answer, Call
from catalog.api.errors import error_answer, error_body
from catalog.api.operations import OPERATIONS, Operation
from catalog.api.replays import Handler, run_once
from catalog.api.turns import Turns
from catalog.errors import (
    CatalogError,
    CommitFailed,
    Forbidden,
    Invalid,
    NoSuchWarehouse,
    NotFound,
    NotWritten,
)
from catalog.identity.roles import Role
from catalog.names import WarehouseRef, warehouse_ref
from catalog.service.catalog import Catalog

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

log = logging.getLogger(__name__)

HANDLERS: dict[str, Handler] = {
    "listNamespaces": namespaces.list_namespaces,
    "createNamespace": namespaces.create_namespace,
    "loadNamespaceMetadata": namespaces.load_namespace,
    "namespaceExists": namespaces.namespace_exists,
    "dropNamespace": namespaces.drop_namespace,
    "updateProperties": namespaces.update_properties,
    "listTables": tables.list_tables,
    "createTable": tables.create_table,
    "registerTable": tables.register_table,
    "loadTable": tables.load_table,
    "updateTable": tables.update_table,
    "dropTable": tables.drop_table,
    "tableExists": tables.table_exists,
    "unregisterTable": tables.unregister_table,
    "renameTable": tables.rename_table,
    "reportMetrics": tables.report_metrics,
    "commitTransaction": tables.commit_transaction,
    "listViews": views.list_views,
    "createView": views.create_view,
    "loadView": views.load_view,
    "replaceView": views.replace_view,
    "dropView": views.drop_view,
    "viewExists": views.view_exists,
    "renameView": views.rename_view,
    "registerView": views.register_view,
}
CONFLICT = 409
COMMITS = frozenset({"updateTable", "commitTransaction", "replaceView"})
# Matched in order: the busiest first.
BUSIEST = ("loadTable", "updateTable", "tableExists", "commitTransaction", "listTables", "reportMetrics")


class Endpoints:
    """What all operations share: the catalog, who calls, and the threads that work."""

    def __init__(self, catalog: Catalog, identity: Any, *, separator: str, threads_max: int) -> None:
        self.catalog = catalog
        self.identity = identity
        self.separator = separator
        # Apart, so that reads go on while many writes wait for a store that does not answer.
        self.writers = ThreadPoolExecutor(threads_max, thread_name_prefix="write")
        self.turns = Turns()
        self.readers = ThreadPoolExecutor(threads_max, thread_name_prefix="read")

    def routes(self) -> list[Route]:
        """One route for each operation, with the prefix and (meaning `main`) without it."""
        order = {operation_id: position for position, operation_id in enumerate(BUSIEST)}
        found = []
        for operation in sorted(OPERATIONS, key=lambda o: order.get(o.id, len(order))):
            endpoint = Endpoint(self, operation, self._handler(operation))
            found.append(_route(operation.path, endpoint, operation.method))
            if "{prefix}" in operation.path:
                found.append(_route(operation.path.replace("/{prefix}", "", 1), endpoint, operation.method))
        return found

    def _handler(self, operation: Operation) -> Handler:
        if operation.id == "getConfig":
            return partial(config.get_config, separator=self.separator)
        if operation.id == "getToken":
            return partial(tokens.get_token, issuer=self.identity)
        return HANDLERS[operation.id]


@lru_cache(maxsize=1024)
def _known_ref(prefix: str) -> WarehouseRef:
    return warehouse_ref(unquote(prefix) if "%" in prefix else prefix)


def _route(path: str, endpoint: Endpoint, method: str) -> Route:
    route = Route(path, endpoint, methods=[method])
    route.methods = {method}  # Starlette adds HEAD to every GET; here HEAD is an operation of its own
    return route


class Endpoint:
    """One operation as an ASGI application."""

    def __init__(self, shared: Endpoints, operation: Operation, handler: Handler) -> None:
        self.shared = shared
        self.operation = operation
        self.handler = handler
        self._separator = unquote(shared.separator)
        self._may_stay = operation.method in ("GET", "HEAD") and shared.catalog.database.is_sqlite
        self._threads = shared.writers if operation.writes else shared.readers
        self._takes_turns = operation.id == "updateTable"
        self._least = Role.WRITER if operation.writes else Role.READER

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["calve.operation"] = self.operation.id
        body = scope.get("calve.body")
        if body is None:
            body = await read_body(receive)
        path, headers = scope["path_params"], scope.get("calve.headers") or dict(scope["headers"])
        call = self.call(path, scope["query_string"], headers, body)
        if self.stays(path):
            answer = self.answer(call)
        elif self._takes_turns:
            answer = await self._answer_in_turn(call, scope.get("client"))
        else:
            answer = await self._answer_in_thread(call)
        if call.caller is not None:
            scope["calve.caller"] = call.caller.name
        whole = answer.whole(self.operation.method)
        reply = scope.get("calve.reply")
        await (reply(whole) if reply is not None else send_answer(send, *whole))

    async def _answer_in_turn(self, call: Call, client: object) -> Answer:
        turns, key = self.shared.turns, tuple(call.path.values())
        await turns.before(key, client)
        lost = False
        try:
            answer = await self._answer_in_thread(call)
            lost = answer.status == CONFLICT
        finally:
            await turns.after(key, client, lost=lost)
        return answer

    def _answer_in_thread(self, call: Call) -> asyncio.Future[Answer]:
        """As run_in_executor, with one future instead of three that watch each other."""
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[Answer] = loop.create_future()

        def work() -> None:
            loop.call_soon_threadsafe(_settle, answered, self.answer(call))

        self._threads.submit(work)
        return answered

    def stays(self, path: dict[str, str]) -> bool:
        """Whether the call is answered on the event loop, at once: a read of the present on SQLite."""
        prefix = path.get("prefix", "")
        return self._may_stay and "@" not in prefix and "~" not in prefix and "%" not in prefix

    def call(
        self, path: dict[str, str], query: bytes, headers: dict[bytes, bytes], body: bytes = b""
    ) -> Call:
        return Call(self.shared.catalog, self.operation, path, query, headers, body, self._separator)

    def answer(self, call: Call) -> Answer:
        return self.timed(call) if b"x-calve-timing" in call.headers else self.perform(call)

    def timed(self, call: Call) -> Answer:
        """`perform`, telling where its time went."""
        timing.begin()
        with timing.stage("rest"):
            answer = self.perform(call)
        stages = ", ".join(f"{name};dur={took_ms:.3f}" for name, took_ms in timing.end().items())
        answer.headers.append((b"server-timing", stages.encode()))
        return answer

    def perform(self, call: Call) -> Answer:
        """Everything between the bytes in and the bytes out. Never raises."""
        try:
            if not self.operation.secured:
                return self.handler(call)
            authorization = call.headers.get(b"authorization")
            call.caller = self.shared.identity.identify(
                authorization.decode("latin-1") if authorization else None
            )
            if "/{prefix}" not in self.operation.path:
                return self.handler(call)
            self._enter(call)
            return run_once(call, self.handler) if self.operation.idempotent_key else self.handler(call)
        except CatalogError as error:
            if isinstance(error, NotFound):
                error = self._why_not_found(call, error)
            elif isinstance(error, NotWritten) and self.operation.id in COMMITS:
                # Clients take 5xx on a commit for "may have happened" and keep its files;
                # this one surely did not.
                error = CommitFailed(error.message)
            if error.status >= 500:
                log.warning(
                    "could not carry out a request", extra={"operation": self.operation.id}, exc_info=error
                )
            return error_answer(error)
        except orjson.JSONEncodeError:
            return error_answer(Invalid("The request is nested too deeply to be kept"))
        except Exception:
            log.exception("unexpected error", extra={"operation": self.operation.id})
            message = (
                "Something went wrong in the server; its log says what, under the request id of this answer"
            )
            return Answer(500, error_body(message, "InternalServerError", 500), [JSON])

    def _why_not_found(self, call: Call, error: NotFound) -> CatalogError:
        """Reads of the present do not look for the warehouse first; if that is what is missing, say so."""
        try:
            if "prefix" in call.path:
                self.shared.catalog.warehouse(warehouse_ref(unquote(call.path["prefix"])).name)
        except CatalogError as missing:
            return missing
        return error

    def _enter(self, call: Call) -> None:
        """Into the warehouse, if it is there for this caller: "not yours" looks like "not there"."""
        assert call.caller is not None
        prefix = call.path.get("prefix", config.DEFAULT_WAREHOUSE)
        ref = _known_ref(prefix)
        role = call.caller.role(ref.name)
        if role is None:
            raise NoSuchWarehouse(f"Warehouse does not exist: {ref.name}")
        try:
            call.state = self.shared.catalog.state(ref)
        except (
            CommitFailed
        ) as error:  # a transaction that is over: a late writer is stopped, a reader finds nothing
            raise error if self.operation.writes else NoSuchWarehouse(error.message) from error
        if role < self._least:
            raise Forbidden(
                f"{call.caller.name} may read {ref.name} but not change it: that takes the role writer"
            )


async def read_body(receive: Receive) -> bytes:
    """The whole body; the middleware has bounded it."""
    message = await receive()
    body: bytes = message.get("body", b"")
    if not message.get("more_body", False):
        return body
    parts = [body]
    while message.get("more_body", False):
        message = await receive()
        parts.append(message.get("body", b""))
    return b"".join(parts)


def _settle(answered: asyncio.Future[Answer], answer: Answer) -> None:
    if not answered.done():  # cancelled, at the end of a stop that took too long
        answered.set_result(answer)


async def send_answer(
    send: Send, status: int, headers: list[tuple[bytes, bytes]], parts: Sequence[bytes]
) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"".join(parts)})
