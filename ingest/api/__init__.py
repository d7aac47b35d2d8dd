"""The HTTP and WebSocket API of ingest.

    app.state.ingest.api = ApiContext(journal, landing, identity, catalog, ApiSettings())
    for router in routers():
        app.include_router(router)

A success means that the changes are durable. `ApiContext.stop` refuses new batches and lets running requests
finish; `ApiContext.close` ends the threads.
"""

from __future__ import annotations

from fastapi import APIRouter

from ingest.api import changes, explain, flush, status, websocket
from ingest.api.context import ApiContext
from ingest.settings import ApiSettings

__all__ = ["ApiContext", "ApiSettings", "routers"]


def routers() -> tuple[APIRouter, ...]:
    """Return all routers. They expect an `ApiContext` at `app.state.ingest.api`, and undecoded paths under
    /cdc and /topics.
    """
    return (changes.router, explain.router, status.router, flush.router, websocket.router)
