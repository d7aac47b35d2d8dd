"""The composition root: from settings to an application. The only file that sees every layer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from calve import __version__
from calve.ingestion import Ingest, ingest_routers, open_ingest
from calve.opening import open_catalog
from calve.serve.middleware import App, Edge
from calve.serve.origins import foreign, public_names
from calve.settings import Settings
from calve.telemetry.metrics import metrics
from catalog.api.calls import Answer
from catalog.api.endpoints import Endpoints
from catalog.api.errors import error_answer, error_body
from catalog.api.health import Probe, health_router
from catalog.api.lake import lake_router
from catalog.api.routing import RouteTree
from catalog.errors import CatalogError
from catalog.identity.open import OpenIdentity
from catalog.identity.tokens import TokenIdentity

ENCODED_PATHS = ("/v1/", "/lake/v1/", "/cdc", "/topics/")
STATUS_TYPES = {404: "NotFoundException", 405: "MethodNotAllowedException", 422: "BadRequestException"}


def create_app(settings: Settings) -> App:
    """The whole application, ready to serve. Call it after a fork: it opens connections and threads."""
    app = described_app(settings)
    operations = RouteTree(app.state.endpoints.routes())
    return Edge.of(on_raw_paths(app, operations), settings, operations.find)


def described_app(settings: Settings) -> FastAPI:
    """The routes on their catalog, without what holds for every request."""
    catalog = open_catalog(settings)
    identity = (
        OpenIdentity()
        if settings.auth == "open"
        else TokenIdentity(catalog.database, token_lifetime_s=settings.token_lifetime_s)
    )
    endpoints = Endpoints(
        catalog, identity, separator=settings.namespace_separator, threads_max=settings.database_pool_size * 2
    )
    own_names = public_names(settings)

    def refuse_origin(headers: Mapping[bytes, bytes]) -> str | None:
        return foreign(headers, own_names) if settings.auth == "open" else None

    return web_app(endpoints, open_ingest(settings, catalog, identity, refuse_origin))


def web_app(endpoints: Endpoints, ingest: Ingest | None = None) -> FastAPI:
    """Every route, the busiest first."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        endpoints.catalog.purging.start()
        if ingest is not None:
            ingest.upkeep.start()
        yield
        if ingest is not None:
            ingest.close()
        endpoints.writers.shutdown(wait=True)
        endpoints.readers.shutdown(wait=True)
        endpoints.catalog.purging.stop()
        endpoints.catalog.database.close()

    app = FastAPI(
        title="Calve",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    app.state.endpoints = endpoints
    app.router.routes.extend(endpoints.routes())
    notes = ingest.view.readiness if ingest is not None else dict

    def render() -> bytes:
        return ingest.api.render_metrics(metrics.render) if ingest is not None else metrics.render()

    app.include_router(health_router(Probe(endpoints.catalog, notes), render))
    app.state.ingest = ingest
    if ingest is not None:
        for router in ingest_routers():
            app.include_router(router)
    app.include_router(lake_router())
    add_error_handlers(app)
    return app


def add_error_handlers(app: FastAPI) -> None:
    app.add_exception_handler(CatalogError, _refuse)
    app.add_exception_handler(RequestValidationError, _refuse_shape)
    app.add_exception_handler(HTTPException, _refuse_route)


def on_raw_paths(app: FastAPI, operations: RouteTree) -> App:
    """Route by the path as the client wrote it, because a name may hold an encoded slash; the spec's
    operations first.
    """

    async def raw(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"].startswith(ENCODED_PATHS):
            path = scope["path"] = scope["raw_path"].decode("ascii", "replace")
            found = operations.find(scope["method"], path)
            if found is not None:
                endpoint, scope["path_params"] = found
                await endpoint(scope, receive, send)
                return
        await app(scope, receive, send)

    return raw


async def _refuse(_request: Request, error: Exception) -> Response:
    assert isinstance(error, CatalogError)
    return _response(error_answer(error))


async def _refuse_shape(_request: Request, error: Exception) -> Response:
    """A body or parameter of the wrong shape: one sentence that names the first wrong field."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return Response(
        error_body(f"{where}: {first['msg']}", "BadRequestException", 400), 400, media_type="application/json"
    )


async def _refuse_route(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    type_ = STATUS_TYPES.get(error.status_code, "BadRequestException")
    hint = ": no such route here" if error.status_code in (404, 405) else ""
    body = error_body(f"{error.detail}{hint}", type_, error.status_code)
    return Response(body, error.status_code, error.headers, media_type="application/json")


def _response(answer: Answer) -> Response:
    response = Response(answer.body, answer.status)
    response.raw_headers.extend(answer.headers)
    return response
