"""`/health` (this process lives), `/ready` (it can do its work), `/metrics`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from catalog.errors import CatalogError
from catalog.service.catalog import Catalog

PROBE_EVERY_S = 5.0  # storage is written to by the probe, so many askers share one look


class HealthAnswer(BaseModel):
    status: str


class Readiness(BaseModel):
    status: str
    checks: dict[str, str]


class Probe:
    """Whether database and storage answer. Storage is looked at every few seconds at most."""

    def __init__(self, catalog: Catalog, notes: Callable[[], dict[str, str]] = dict) -> None:
        """`notes` are checks that are told, and keep nobody from sending requests here."""
        self._catalog = catalog
        self.notes = notes
        self._storage: str = ""
        self._looked_at_s = -PROBE_EVERY_S

    def checks(self) -> dict[str, str]:
        found = {"database": self._ask(lambda: self._catalog.warehouse("main"))}
        if time.monotonic() - self._looked_at_s >= PROBE_EVERY_S or self._storage != "ok":
            self._storage = self._ask(lambda: self._catalog.files.probe(self._catalog.warehouse("main").root))
            self._looked_at_s = time.monotonic()
        return found | {"storage": self._storage}

    @staticmethod
    def _ask(look: Callable[[], object]) -> str:
        try:
            look()
        except CatalogError as error:
            return error.message
        return "ok"


def health_router(probe: Probe, render_metrics: Callable[[], bytes]) -> APIRouter:
    router = APIRouter(tags=["Operation"])

    @router.get("/health", operation_id="health", response_model=HealthAnswer)
    async def health() -> Any:
        """The process lives."""
        return {"status": "ok"}

    @router.get(
        "/ready", operation_id="ready", response_model=Readiness, responses={503: {"model": Readiness}}
    )
    def ready() -> Any:
        """Database and storage answer; 503 with the reason if one does not."""
        checks = probe.checks()
        ok = all(value == "ok" for value in checks.values())
        told = checks | (probe.notes() if ok else {})
        return JSONResponse({"status": "ok" if ok else "not ready", "checks": told}, 200 if ok else 503)

    @router.get("/metrics", operation_id="metrics", response_class=Response)
    def metrics() -> Response:
        """Figures for Prometheus."""
        return Response(render_metrics(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return router
