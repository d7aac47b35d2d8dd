"""How many writes run at once, what happens to those that wait too long, and in which order they run."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any

import anyio
import httpx
import pytest
from fastapi import Depends, FastAPI, Response

from catalog.api.context import commit_turn
from catalog.api.dependencies import WriteSlot
from catalog.api.errors import add_exception_handlers
from catalog.errors import CommitFailed, NotWritten
from catalog.services.writes import WriteContext, WritePlan, write_with_retry

TABLE = "/v1/{prefix}/namespaces/{namespace}/tables/{table}"

CommitTurn = Annotated[None, Depends(commit_turn, scope="function")]


class Queue:
    """Notes the calls in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.contended: set[tuple[str, ...]] = set()

    async def enter(self, key: object, client: object) -> None:
        self.calls.append(("enter", key, client))

    async def leave(self, key: object, client: object, *, lost: bool) -> None:
        self.calls.append(("leave", key, client, lost))


def application(slots: int = 1) -> FastAPI:
    app = FastAPI()
    add_exception_handlers(app)
    app.state.separator = "\x1f"
    app.state.write_slots = anyio.CapacityLimiter(slots)
    app.state.commit_queue = None
    app.state.runs = 0

    @app.post("/write")
    async def write(_: WriteSlot) -> Response:
        app.state.runs += 1
        app.state.free_during_run = app.state.write_slots.available_tokens
        return Response(status_code=204)

    @app.post(TABLE)
    async def commit(table: str, _turn: CommitTurn, _slot: WriteSlot) -> Response:
        if table == "contended":
            raise CommitFailed("another commit was first")
        return Response(status_code=204)

    return app


async def post(app: FastAPI, address: str, *, deadline_s: float | None = None) -> httpx.Response:
    async def with_deadline(scope: Any, receive: Any, send: Any) -> None:
        if deadline_s is not None:
            scope["calve.deadline_s"] = deadline_s
        await app(scope, receive, send)

    transport = httpx.ASGITransport(with_deadline, client=("10.0.0.1", 5))
    async with httpx.AsyncClient(transport=transport, base_url="http://calve") as client:
        return await client.post(address)


def test_a_write_holds_a_slot_while_it_runs() -> None:
    app = application(slots=3)
    assert asyncio.run(post(app, "/write")).status_code == 204
    assert app.state.free_during_run == 2
    assert app.state.write_slots.available_tokens == 3


def test_a_write_whose_deadline_comes_first_is_refused_and_never_runs() -> None:
    app = application()

    async def scenario() -> httpx.Response:
        holder = object()
        await app.state.write_slots.acquire_on_behalf_of(holder)
        response = await post(app, "/write", deadline_s=time.monotonic() + 0.2)
        app.state.write_slots.release_on_behalf_of(holder)
        await asyncio.sleep(0)
        return response

    response = asyncio.run(scenario())
    assert response.status_code == 503
    assert response.json()["error"]["type"] == "ServiceUnavailableException"
    assert response.headers["retry-after"] == "1"
    assert app.state.runs == 0
    assert app.state.write_slots.available_tokens == 1


def test_a_write_waits_for_a_slot() -> None:
    app = application()

    async def scenario() -> httpx.Response:
        holder = object()
        await app.state.write_slots.acquire_on_behalf_of(holder)
        waiting = asyncio.create_task(post(app, "/write", deadline_s=time.monotonic() + 60))
        while not app.state.write_slots.statistics().tasks_waiting:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.001)
        app.state.write_slots.release_on_behalf_of(holder)
        return await waiting

    assert asyncio.run(scenario()).status_code == 204
    assert app.state.runs == 1


@pytest.mark.parametrize(("table", "status", "lost"), [("t", 204, False), ("contended", 409, True)])
def test_a_commit_takes_its_turn_at_the_table(table: str, status: int, lost: bool) -> None:
    app, queue = application(), Queue()
    app.state.commit_queue = queue
    key = ("main", "a\x1fb", table)
    queue.contended.add(key)
    response = asyncio.run(post(app, f"/v1/main/namespaces/a%1Fb/tables/{table}"))
    assert response.status_code == status
    assert queue.calls == [("enter", key, ("10.0.0.1", 5)), ("leave", key, ("10.0.0.1", 5), lost)]


def test_only_a_lost_commit_makes_a_table_contended() -> None:
    app, queue = application(), Queue()
    app.state.commit_queue = queue
    for table in ("t", "contended"):
        asyncio.run(post(app, f"/v1/main/namespaces/a/tables/{table}"))
    assert queue.calls == [("leave", ("main", "a", "contended"), ("10.0.0.1", 5), True)]


def test_nothing_is_written_after_the_deadline() -> None:
    def plan() -> WritePlan[None]:
        raise AssertionError("the write was planned")

    catalog: Any = None
    state: Any = None
    with pytest.raises(NotWritten, match="deadline"):
        write_with_retry(catalog, state, WriteContext("me", deadline_s=time.monotonic() - 1), plan)
