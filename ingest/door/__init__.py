"""The front door for changes: HTTP and WebSocket in, the journal behind it.

    entrance = door(journal, landing, identity, catalog, DoorSettings(), metrics)
    entrance.routes        ASGI routes on undecoded paths: POST /cdc, /cdc/{namespace}/{table}, ...
    entrance.router        a FastAPI router: GET /status, POST /flush, GET /lake/v1/{warehouse}/landed
    entrance.websocket     the ASGI application of /ws
    entrance.describe_in(app)   adds the ASGI routes to what the app says of itself

An answer means that the changes are durable. `stop` turns new batches away while those under way are
finished; `close` ends the threads.
"""

from __future__ import annotations

from ingest.door.opened import Door, door
from ingest.door.settings import DoorSettings

__all__ = ["Door", "DoorSettings", "door"]
