"""The application factory, the only module that imports every layer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anyio import CapacityLimiter
from fastapi import Depends, FastAPI
from starlette.middleware.gzip import DEFAULT_EXCLUDED_CONTENT_TYPES, GZipMiddleware
from starlette.types import ASGIApp

from calve import __version__
from calve.bootstrap import (
    Ingest,
    ingest_routers,
    open_catalog,
    open_identity,
    open_ingest,
    reader_connections,
)
from calve.feeding import open_feed, open_webhooks
from calve.http import wrap
from calve.maintaining import open_maintenance
from calve.openapi import describe
from calve.pages import add_pages
from calve.querying import open_hot_rows, open_pending, open_query, open_tables, readiness
from calve.settings import Settings
from calve.telemetry.metrics import render as render_metrics
from catalog import fast
from catalog.api import routers
from catalog.api.context import WRITERS_MAX, check_query
from catalog.api.errors import add_exception_handlers
from catalog.api.health import Probe
from catalog.fast.commit_queue import CommitQueue
from catalog.identity.open import OpenIdentity
from catalog.identity.tokens import TokenIdentity
from catalog.services.catalog import Catalog
from maintenance import api as maintenance_api
from query import api as query_api
from query import media_types
from query.feed import api as feed_api
from query.feed.webhooks import api as webhooks_api
from query.feed.websocket import WebSocketFeed
from query.tables.api import tables_router

GZIP_BYTES_MIN = 16 * 1024  # below this size compression costs more than it saves


def create_app(settings: Settings) -> ASGIApp:
    """The whole application, ready to serve. Call it after a fork: it opens connections and threads."""
    app = fastapi_app(settings)

    def fast_reads(inner: ASGIApp) -> ASGIApp:
        return fast.install(
            inner,
            app.state.catalog,
            app.state.identity,
            separator=app.state.separator,
            connections_max=reader_connections(settings),
        )

    return wrap(app, settings, fast_reads if settings.fast_paths else None)


def fastapi_app(settings: Settings) -> FastAPI:
    """The FastAPI application on its database and storage, without the middleware around it."""
    catalog = open_catalog(settings)
    identity = open_identity(settings, catalog)
    return assemble(settings, catalog, identity, open_ingest(settings, catalog, identity))


def assemble(
    settings: Settings,
    catalog: Catalog,
    identity: OpenIdentity | TokenIdentity,
    ingest: Ingest | None = None,
) -> FastAPI:
    """Routers, exception handlers and middleware around a catalog; with ingest, if it is given."""
    app = FastAPI(
        title="Calve",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        dependencies=[Depends(check_query)],
    )
    app.state.catalog, app.state.identity = catalog, identity
    app.state.encoded_separator = settings.namespace_separator
    app.state.separator = settings.namespace_separator_text
    app.state.commit_queue = CommitQueue() if settings.fast_paths else None
    app.state.write_slots = CapacityLimiter(WRITERS_MAX)
    app.state.ingest = ingest
    app.state.maintenance = open_maintenance(settings, catalog, ingest)
    app.state.verification = app.state.maintenance.verification
    app.state.tables = open_tables(settings, catalog, ingest.tables if ingest is not None else None)
    api = ingest.api if ingest is not None else None
    pending = open_pending(ingest) if ingest is not None else None
    app.state.query = open_query(settings, catalog, api, app.state.tables, pending)
    app.state.hot_rows = open_hot_rows(pending) if pending is not None else None
    app.state.feed = open_feed(settings, catalog, identity, app.state.tables)
    app.state.webhooks = open_webhooks(settings, catalog, identity, app.state.feed)
    if ingest is not None:
        ingest.api.subscriptions = WebSocketFeed(app.state.feed)

    def notes() -> dict[str, str]:
        worker = ingest.landing_status.readiness() if ingest is not None else {}
        return worker | {"query": readiness(settings)}

    app.state.probe = Probe(catalog, notes)
    app.state.metrics_auth = settings.metrics_auth
    app.state.render_metrics = render_metrics
    for router in routers():
        app.include_router(router)
    if ingest is not None:
        app.state.render_metrics = lambda: ingest.api.render_metrics(render_metrics)
        for router in ingest_routers():
            app.include_router(router)
    app.include_router(query_api.router)
    app.include_router(feed_api.router)
    app.include_router(webhooks_api.router)
    app.include_router(tables_router())
    app.include_router(maintenance_api.router)
    if ingest is not None:
        app.include_router(maintenance_api.jobs_router)
    add_pages(app)
    describe(app)
    add_exception_handlers(app)
    app.add_middleware(
        GZipMiddleware,
        minimum_size=GZIP_BYTES_MIN,
        compresslevel=1,
        exclude_content_types=(*DEFAULT_EXCLUDED_CONTENT_TYPES, *media_types.COMPACT_MEDIA_TYPES),
    )
    return app


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    state = app.state
    state.catalog.purge_worker.start()
    if state.ingest is not None:
        state.ingest.housekeeping.start()
    state.maintenance.start()
    state.webhooks.start()
    state.query.watch_for_stop()
    yield
    state.maintenance.stop()
    await state.webhooks.stop()
    state.feed.close()
    await state.query.close()
    if state.ingest is not None:
        state.ingest.close()
    # A write whose client got a 504 may still be running: it ends before the database is closed.
    for _ in range(WRITERS_MAX):
        await state.write_slots.acquire_on_behalf_of(object())
    state.catalog.purge_worker.stop()
    state.catalog.database.close()
