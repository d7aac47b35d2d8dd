"""The composition root: from settings to an application. The only file that sees every layer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import ArgumentError, DBAPIError
from starlette.exceptions import HTTPException

from calve import __version__
from calve.serve.middleware import App, Edge
from calve.settings import Settings
from calve.startup import StartupError
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
from catalog.service.catalog import Catalog, Limits
from catalog.service.warehouses import ensure_main
from catalog.storage.files import StorageFiles
from catalog.storage.settings import S3Settings
from catalog.store.database import Database
from catalog.store.migrations import SchemaMismatch, migrate, require_current
from catalog.store.migrations import version as schema_version
from catalog.store.warehouses import WarehouseStore

ENCODED_PATHS = ("/v1/", "/lake/v1/")
STATUS_TYPES = {404: "NotFoundException", 405: "MethodNotAllowedException", 422: "BadRequestException"}


def reach_database(settings: Settings) -> Database:
    """The database, whatever its version, if it answers."""
    try:
        database = Database(settings.database, pool_size=settings.database_pool_size)
        if database.is_sqlite and database.url.database:
            Path(database.url.database).parent.mkdir(parents=True, exist_ok=True)
        schema_version(database)
    except (DBAPIError, ArgumentError, OSError) as error:
        reason = str(getattr(error, "orig", None) or error).splitlines()[0]
        raise StartupError(f"Cannot open the database: {reason}") from error
    return database


def open_database(settings: Settings) -> Database:
    """The database at the right version. SQLite files are brought up to date here: they have one owner."""
    database = reach_database(settings)
    try:
        if database.is_sqlite:
            migrate(database)
        require_current(database)
    except SchemaMismatch as error:
        raise StartupError(str(error)) from error
    return database


def open_catalog(settings: Settings) -> Catalog:
    """The catalog on its database and storage, with the warehouse `main`."""
    database = open_database(settings)
    roots = {settings.warehouse_root, *(known.root for known in WarehouseStore(database).all())}
    files = StorageFiles(_s3(settings), file_roots=[root for root in roots if not root.startswith("s3")])
    limits = Limits(
        drop_retention_s=settings.drop_retention_s,
        transaction_ttl_s=settings.transaction_ttl_s,
        idempotency_lifetime_s=settings.idempotency_lifetime_s,
        document_cache_bytes_max=settings.document_cache_bytes_max,
        page_size_max=settings.page_size_max,
    )
    catalog = Catalog(database, files, limits, files.client_properties)
    try:
        ensure_main(catalog, settings.warehouse_root)
    except CatalogError as error:
        raise StartupError(error.message) from error
    return catalog


def create_app(settings: Settings) -> App:
    """The whole application, ready to serve. Call it after a fork: it opens connections and threads."""
    app = described_app(settings)
    return Edge.of(on_raw_paths(app, RouteTree(app.state.endpoints.routes())), settings)


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
    return web_app(endpoints)


def web_app(endpoints: Endpoints) -> FastAPI:
    """Every route, the busiest first."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        endpoints.writers.shutdown(wait=True)
        endpoints.readers.shutdown(wait=True)
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
    app.include_router(health_router(Probe(endpoints.catalog), metrics.render))
    app.include_router(lake_router())
    app.add_exception_handler(CatalogError, _refuse)
    app.add_exception_handler(RequestValidationError, _refuse_shape)
    app.add_exception_handler(HTTPException, _refuse_route)
    return app


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


def _s3(settings: Settings) -> S3Settings:
    try:
        return S3Settings(
            endpoint=settings.s3_endpoint,
            region=settings.s3_region,
            access_key_id=settings.s3_access_key_id,
            secret_access_key=settings.s3_secret_access_key,
            path_style=settings.s3_path_style,
            connect_timeout_s=settings.s3_connect_timeout_s,
            request_timeout_s=settings.s3_request_timeout_s,
            total_timeout_s=max(9.0, 2.2 * settings.s3_request_timeout_s),  # room for a second try
        )
    except ValueError as error:
        raise StartupError(str(error)) from error
