"""Run one query, from its request to the pieces of its response.

    prepare (in a query process) -> wait for the consistency -> pin and resolve -> run -> pieces

The service does not depend on HTTP. Errors are CatalogErrors; a result that fails in the middle raises one
from `pieces`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from fastapi.concurrency import run_in_threadpool

from catalog.errors import CatalogError, DeadlineExceeded, Invalid, Unavailable
from catalog.models import Caller
from catalog.moments import AtNumber, AtTime, Now
from catalog.names import Namespace, WarehouseRef, namespace_from_levels, warehouse_ref
from catalog.services.catalog import Catalog
from catalog.shutdown import stopping
from catalog.store.queries import QueryStore
from query import explain
from query.errors import Cancelled, as_catalog_error
from query.landing import AT_LEAST, COMMITTED, FRESH, JOURNAL, PUBLISHED, WAITED, Freshness, Tables, mirrors
from query.moments import AtToken, requested_moment
from query.pool import Lease, ProcessPool, QueryError
from query.registry import NoSuchQuery, Query, Registry, may_cancel
from query.resolve import Plan, Resolver
from query.sharing import SharedQueries, merged
from query.unpublished import MustWait, Unpublished

DEADLINE_MARGIN_S = 0.3  # a query that times out must respond before the HTTP layer does
PARAMETERS_MAX = 1000
STOPPING_POLL_S = 0.5
STOPPING_GRACE_S = 2.0


@dataclass(frozen=True, slots=True)
class QueryRequest:
    """The parameters of a query."""

    sql: str
    params: dict[str, Any] | list[Any] | None = None
    as_of: str | int | float | None = None
    snapshot_id: int | None = None
    consistency: str = COMMITTED
    warehouse: str = "main"
    namespace: str | None = None
    format: str = "json"
    explain: bool = False
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """Settings of the server."""

    timeout_s: float = 60.0
    result_bytes_max: int = 4 * 2**30
    default_namespace: str = "default"
    sandbox_missing: str | None = None  # why no query may run


@dataclass(slots=True)
class Answer:
    """A query whose result has begun."""

    query: Query
    summary: dict[str, Any]
    first: bytes
    is_whole: bool  # `first` is the whole result
    rest: AsyncIterator[bytes] | None = None
    explained: dict[str, Any] | None = None


@dataclass(slots=True)
class _Moment:
    ref: WarehouseRef
    moment: AtNumber | AtTime | Now
    token: AtToken | None = None
    namespace: Namespace = field(default_factory=lambda: Namespace(()))


class QueryService:
    """Runs the queries of one server process."""

    def __init__(
        self,
        catalog: Catalog,
        freshness: Freshness,
        pool: ProcessPool,
        limits: QueryLimits,
        files_of: explain.FilesOf,
        unpublished: Unpublished,
    ) -> None:
        """`files_of` reads the files of a snapshot from storage, for `explain`."""
        self._unpublished = unpublished
        self._catalog = catalog
        self._files_of = files_of
        self._freshness = freshness
        self._pool = pool
        self._limits = limits
        self._stopper: asyncio.Task[None] | None = None
        self._registry = Registry()
        self._shared = SharedQueries(
            QueryStore(catalog.database), self._registry, catalog.now_ms, self._stop_for
        )
        self._sharing: asyncio.Task[None] | None = None

    def watch_for_stop(self) -> None:
        """Call it on the event loop when the server starts."""
        loop = asyncio.get_running_loop()
        self._stopper = loop.create_task(self._end_when_stopping())
        self._sharing = loop.create_task(self._shared.run())

    async def close(self) -> None:
        for task in (self._stopper, self._sharing):
            if task is not None:
                task.cancel()
        self._stop_all()
        await self._pool.close()

    async def _end_when_stopping(self) -> None:
        """Stop queries when the server stops: it waits for requests in flight, so queries get a short time;
        clients can send them again.
        """
        while not stopping.is_set():  # noqa: ASYNC110 - it is set by a signal handler, in any thread
            await asyncio.sleep(STOPPING_POLL_S)
        await asyncio.sleep(STOPPING_GRACE_S)
        self._stop_all()

    def _stop_all(self) -> None:
        for query in self._registry.running():
            query.stop(Unavailable("The server is stopping: send the query again in a moment"))

    async def start(
        self, request: QueryRequest, caller: Caller, token: str | None, deadline_s: float | None = None
    ) -> Answer:
        """Run the query up to the first piece of its result. `token` is the caller's own bearer token."""
        if self._limits.sandbox_missing is not None:
            raise Unavailable(self._limits.sandbox_missing, retry_after_s=60)
        query = self._registry.begin(caller.name, request.sql, request.warehouse)
        timeout_s = min(request.timeout_s or self._limits.timeout_s, self._limits.timeout_s)
        first_s = timeout_s
        if deadline_s is not None:
            first_s = min(timeout_s, deadline_s - DEADLINE_MARGIN_S - time.monotonic())
        late = DeadlineExceeded(f"The query took longer than {first_s:.3g} s and was ended")
        loop = asyncio.get_running_loop()
        timer = loop.call_later(first_s, query.stop, late)
        task = loop.create_task(self._start(request, query, caller, token, first_s))
        query.task = task
        try:
            answer = await task
        except BaseException as error:  # noqa: BLE001 - raised again, or what stopped the query is
            task.cancel()
            raise self._failed(query, error) from None
        finally:
            query.task = None
            timer.cancel()
        if not answer.is_whole:
            assert answer.rest is not None
            answer.rest = self._rest(query, answer.rest, timeout_s)
        return answer

    async def cancel(self, query_id: str, caller: Caller) -> bool:
        """Cancel a query of this or of another server process. Returns False if it has not ended yet."""
        query = self._registry.find(query_id)
        if query is None:
            return await self._shared.cancel(query_id, caller)
        if not may_cancel(caller, query.caller, query.warehouse):
            raise NoSuchQuery(query_id)
        self._stop_for(query, caller.name)
        return True

    async def listed(self, warehouse: str) -> list[dict[str, Any]]:
        """Return running and recent queries of all server processes."""
        others = await run_in_threadpool(self._shared.listed, warehouse)
        return merged(self._registry.listed(warehouse), others)

    @staticmethod
    def _stop_for(query: Query, caller: str) -> None:
        query.stop(Cancelled(f"The query was cancelled by {caller}"))

    # -- until the first piece

    async def _start(
        self, request: QueryRequest, query: Query, caller: Caller, token: str | None, timeout_s: float
    ) -> Answer:
        until_s = time.monotonic() + timeout_s
        wanted = self._wanted(request)
        query.warehouse = wanted.ref.name
        parameters = _parameters(request.params)
        lease = await self._lease(query, until_s)
        statement = await lease.process.prepare(request.sql)
        _check_parameters(statement["parameters"], parameters)
        tables = mirrors(statement["tables"], wanted.ref.name, wanted.namespace, caller)
        resolver = Resolver(
            self._catalog, caller, wanted.ref, wanted.namespace, wanted.moment, request.snapshot_id
        )
        fresh, reason = None, None
        if request.consistency == FRESH:
            try:
                fresh = await run_in_threadpool(self._unpublished.plan, tables, resolver, statement["tables"])
            except MustWait as error:
                reason = str(error)
        if fresh is None and (request.consistency != COMMITTED or wanted.token is not None):
            self._release(query)
            await self._wait(request, wanted, tables, caller, until_s)
            lease = await self._lease(query, until_s)
        plan, summary = await run_in_threadpool(
            self._resolved, query, resolver, statement["tables"], tables, fresh
        )
        if request.consistency == FRESH:
            by = (JOURNAL if plan.overlays else PUBLISHED) if reason is None else WAITED
            summary |= {"fresh_by": by, "fresh_reason": reason}
        query.warehouses = set(plan.pins)
        roots = [pin.state.warehouse.root for pin in plan.pins.values()]
        if not all(map(lease.process.settings.covers, roots)):
            # The warehouse is newer than the process, which cannot get access to it.
            self._pool.renew()
            self._release(query)
            lease = await self._lease(query, until_s)
        query.state = "running"
        run = lease.process.run(
            {
                "sql": request.sql,
                "parameters": parameters,
                "format": request.format,
                "tables": plan.names,
                "overlays": [overlay.as_message() for overlay in plan.overlays],
                "attachments": [
                    pin.attachment(token)
                    for pin in plan.pins.values()
                    if any(read.pin is pin for read in plan.reads)
                ],
                "summary": summary,
                "prepared_ms": round((time.monotonic() - query.started_s) * 1000, 3),
                "result_bytes_max": self._limits.result_bytes_max,
                "explain": request.explain,
            },
            [overlay.data for overlay in plan.overlays],
        )
        first = await anext(run, b"")
        done = lease.process.done
        query.sent_bytes = len(first)
        if done is None:
            return Answer(query, summary, first, is_whole=False, rest=run)
        query.rows = done.get("rows")
        self._finish(query)
        explained = None
        if request.explain:
            explained = await run_in_threadpool(explain.described, done, plan, self._files_of)
        return Answer(query, summary, first, is_whole=True, explained=explained)

    def _wanted(self, request: QueryRequest) -> _Moment:
        if request.consistency not in (COMMITTED, FRESH) and not request.consistency.startswith(AT_LEAST):
            raise Invalid("consistency must be committed, fresh or at_least:TOKEN")
        ref = warehouse_ref(request.warehouse)
        levels = (request.namespace or self._limits.default_namespace).split(".")
        namespace = namespace_from_levels(levels)
        if ref.at is not None or ref.transaction is not None:
            if request.as_of is not None:
                raise Invalid(f"warehouse={request.warehouse} names a state already: leave out as_of")
            moment = requested_moment(ref.at, self._catalog.now_ms())
        else:
            moment = requested_moment(request.as_of, self._catalog.now_ms())
        if not isinstance(moment, Now) and request.consistency != COMMITTED:
            raise Invalid("consistency is for the present: leave out as_of, or consistency")
        if isinstance(moment, AtToken):
            if moment.warehouse != ref.name:
                raise Invalid(f"as_of: the token belongs to the warehouse {moment.warehouse}, not {ref.name}")
            return _Moment(WarehouseRef(ref.name), Now(), moment, namespace)
        return _Moment(WarehouseRef(ref.name, transaction=ref.transaction), moment, None, namespace)

    async def _wait(
        self, request: QueryRequest, wanted: _Moment, tables: Tables, caller: Caller, until_s: float
    ) -> None:
        timeout_s = max(0.0, until_s - time.monotonic() - DEADLINE_MARGIN_S)
        consistency = request.consistency
        if wanted.token is not None:
            consistency = f"{AT_LEAST}{wanted.token.warehouse}:{wanted.token.journal_id}"
        await self._freshness.wait(consistency, tables, caller, timeout_s)

    def _resolved(
        self,
        query: Query,
        resolver: Resolver,
        named: list[dict[str, Any]],
        tables: Tables,
        plan: Plan | None,
    ) -> tuple[Plan, dict[str, Any]]:
        """Return the plan, and what the response says besides its rows. One call in one thread: it
        reads SQL.
        """
        waiting = {}
        if plan is None:
            waiting = self._freshness.waiting(tables)  # first: changes that are acknowledged later are newer
            plan = resolver.plan(named)
        now_ms = self._catalog.now_ms()
        pins = [
            pin.as_json(resolver.commit_ms(pin), plan.cuts.get(pin.warehouse)) for pin in plan.pins.values()
        ]
        as_of: dict[str, Any] = pins[0] if len(pins) == 1 else pins[0] | {"warehouses": pins}
        next_ms = resolver.superseded_ms()
        superseded_ms = 0 if next_ms is None else max(0, now_ms - next_ms)
        return plan, {
            "as_of": as_of,
            "snapshots": plan.snapshots,
            "freshness_ms": max(superseded_ms, self._freshness.age_ms(waiting, plan, now_ms)),
            "query_id": query.id,
        }

    # -- the rest of a large result

    async def _rest(self, query: Query, run: AsyncIterator[bytes], timeout_s: float) -> AsyncIterator[bytes]:
        assert query.lease is not None
        left_s = query.started_s + timeout_s - time.monotonic()
        process = query.lease.process
        late = DeadlineExceeded(f"The query took longer than {timeout_s:.3g} s and was ended")
        timer = asyncio.get_running_loop().call_later(max(0.0, left_s), query.stop, late)
        try:
            async for piece in run:
                query.sent_bytes += len(piece)
                if process.done is not None:
                    query.rows = process.done.get("rows")
                yield piece
            self._finish(query)
        except QueryError as error:
            raise self._failed(query, error) from error
        finally:
            timer.cancel()
            if query.duration_ms is None:  # the client has disconnected
                query.stop(Cancelled("The client closed the connection"))
                self._finish(query, "the client closed the connection")

    # -- processes

    async def _lease(self, query: Query, until_s: float) -> Lease:
        wait_s = max(0.0, until_s - time.monotonic())
        query.lease = await self._pool.acquire(query.caller, wait_s)
        return query.lease

    def _release(self, query: Query) -> None:
        if query.lease is not None:
            query.lease.release()
            query.lease = None

    def _finish(self, query: Query, error: str | None = None) -> None:
        self._release(query)
        self._registry.finish(query, error)

    def _failed(self, query: Query, error: BaseException) -> BaseException:
        """End the query, and return the error of the API for its failure."""
        failure = query.stopped or as_catalog_error(error)
        has_answered = isinstance(error, QueryError | CatalogError) and query.state != "running"
        if query.lease is not None and not (has_answered or isinstance(error, QueryError)):
            query.lease.abort()  # the process may be in the middle of the query
        self._finish(query, getattr(failure, "message", type(failure).__name__))
        return failure


def _parameters(given: dict[str, Any] | list[Any] | None) -> dict[str, Any] | list[Any] | None:
    if given is None:
        return None
    if len(given) > PARAMETERS_MAX:
        raise Invalid(f"params: at most {PARAMETERS_MAX} are allowed")
    # Positional parameters may be given by their numbers, as GET does.
    if isinstance(given, dict) and given and all(name.isdigit() for name in given):
        return [given[name] for name in sorted(given, key=int)]
    return given


def _check_parameters(expected: list[str], given: dict[str, Any] | list[Any] | None) -> None:
    have = {str(index + 1) for index in range(len(given))} if isinstance(given, list) else set(given or ())
    missing = [name for name in expected if name not in have]
    if missing:
        raise Invalid(f"params: the SQL has the parameter ${missing[0]}, and no value was given for it")
    unknown = sorted(have - set(expected))
    if unknown:
        raise Invalid(f"params: the SQL has no parameter ${unknown[0]}")
