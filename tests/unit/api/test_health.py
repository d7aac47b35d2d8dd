"""`/ready` looks once, however many ask; `/metrics` is open or asks for a token, as the setting says."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from fastapi import FastAPI

from catalog.api import health
from catalog.api.errors import add_exception_handlers
from catalog.api.health import Probe
from catalog.errors import NotAuthorized, Unavailable
from catalog.models import Caller
from catalog.services.catalog import Catalog

ASKERS = 60  # more than AnyIO has threads


class SlowStorage:
    """Storage that hangs until it is told to fail."""

    def __init__(self) -> None:
        self.looks = 0
        self.looked_at = threading.Event()
        self.fail = threading.Event()

    def probe(self, _root: str) -> None:
        self.looks += 1
        self.looked_at.set()
        assert self.fail.wait(30)
        raise Unavailable("storage does not answer")


class Identity:
    def identify(self, authorization: str | None) -> Caller:
        if authorization != "Bearer good":
            raise NotAuthorized("a valid bearer token is needed")
        return Caller("scraper", {})


def application(storage: Any, *, metrics_auth: bool = False) -> FastAPI:
    catalog = SimpleNamespace(files=storage, warehouse=lambda _name: SimpleNamespace(root="file:///lake"))
    app = FastAPI()
    app.include_router(health.router)
    add_exception_handlers(app)
    app.state.probe = Probe(cast("Catalog", catalog), lambda: {"worker": "none"})
    app.state.metrics_auth = metrics_auth
    app.state.identity = Identity()
    app.state.render_metrics = lambda: b"figures 1\n"
    return app


def client(app: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://calve")


def test_many_requests_share_one_look_at_storage_that_hangs() -> None:
    storage = SlowStorage()

    async def scenario() -> list[httpx.Response]:
        async with client(application(storage)) as http:
            asking = [asyncio.create_task(http.get("/ready")) for _ in range(ASKERS)]
            assert await asyncio.to_thread(storage.looked_at.wait, 30)
            assert (await http.get("/health")).status_code == 200
            storage.fail.set()
            return await asyncio.gather(*asking)

    responses = asyncio.run(scenario())
    assert {response.status_code for response in responses} == {503}
    assert responses[0].json()["checks"] == {"database": "ok", "storage": "storage does not answer"}
    assert storage.looks == 1


def test_storage_that_failed_is_looked_at_again_by_the_next_request() -> None:
    storage = SlowStorage()
    storage.fail.set()

    async def scenario() -> list[int]:
        async with client(application(storage)) as http:
            first = await http.get("/ready")
            storage.probe = lambda _root: None  # type: ignore[method-assign]
            second = await http.get("/ready")
            assert second.json() == {
                "status": "ok",
                "checks": {"database": "ok", "storage": "ok", "worker": "none"},
            }
            return [first.status_code, second.status_code]

    assert asyncio.run(scenario()) == [503, 200]


@pytest.mark.parametrize(
    ("metrics_auth", "authorization", "status"),
    [(False, None, 200), (True, None, 401), (True, "Bearer bad", 401), (True, "Bearer good", 200)],
)
def test_metrics_ask_for_a_token_if_the_setting_says_so(
    metrics_auth: bool, authorization: str | None, status: int
) -> None:
    headers = {"Authorization": authorization} if authorization else {}

    async def scenario() -> httpx.Response:
        async with client(application(SlowStorage(), metrics_auth=metrics_auth)) as http:
            return await http.get("/metrics", headers=headers)

    response = asyncio.run(scenario())
    assert response.status_code == status
    assert (response.content == b"figures 1\n") == (status == 200)
