"""`/health` (the process runs), `/ready` (it can do its work), `/metrics`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from catalog.api.context import get_caller
from catalog.errors import CatalogError
from catalog.services.catalog import Catalog

PROBE_EVERY_S = 5.0  # the probe writes to storage, so it is not run for every request

router = APIRouter(tags=["Operation"])


class HealthAnswer(BaseModel):
    status: str


class Readiness(BaseModel):
    status: str
    checks: dict[str, str]


class Probe:
    """Whether the database and storage answer.

    One check runs at a time; requests that arrive meanwhile wait for its result on the event loop. So storage
    that hangs blocks one thread, regardless of the number of requests.
    """

    def __init__(self, catalog: Catalog, notes: Callable[[], dict[str, str]] = dict) -> None:
        """`notes` returns further problems that do not make the server unready."""
        self._catalog = catalog
        self._notes = notes
        self._storage = ""
        self._probed_s = -PROBE_EVERY_S
        self._running: asyncio.Task[Readiness] | None = None

    async def readiness(self) -> Readiness:
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(run_in_threadpool(self.check))
        return await asyncio.shield(self._running)

    def check(self) -> Readiness:
        checks = {"database": self._check(lambda: self._catalog.warehouse("main"))}
        if time.monotonic() - self._probed_s >= PROBE_EVERY_S or self._storage != "ok":
            self._storage = self._check(self._probe_storage)
            self._probed_s = time.monotonic()
        checks["storage"] = self._storage
        if any(value != "ok" for value in checks.values()):
            return Readiness(status="not ready", checks=checks)
        return Readiness(status="ok", checks=checks | self._notes())

    def _probe_storage(self) -> None:
        self._catalog.files.probe(self._catalog.warehouse("main").root)

    @staticmethod
    def _check(check: Callable[[], object]) -> str:
        try:
            check()
        except CatalogError as error:
            return error.message
        return "ok"


@router.get("/health", operation_id="health", response_model=HealthAnswer)
async def health() -> Any:
    """The process is alive."""
    return {"status": "ok"}


@router.get("/ready", operation_id="ready", response_model=Readiness, responses={503: {"model": Readiness}})
async def ready(request: Request) -> Any:
    """Database and storage answer; 503 with the reason if one does not."""
    probe: Probe = request.app.state.probe
    found = await probe.readiness()
    return JSONResponse(found.model_dump(), 200 if found.status == "ok" else 503)


async def metrics_reader(request: Request) -> None:
    """With the setting `metrics_auth` a caller needs a token."""
    if request.app.state.metrics_auth:
        await get_caller(request)


@router.get("/metrics", operation_id="metrics", response_class=Response)
def metrics(request: Request, _: Annotated[None, Depends(metrics_reader)]) -> Response:
    """Metrics for Prometheus."""
    text: bytes = request.app.state.render_metrics()
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")
