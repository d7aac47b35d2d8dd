"""The door put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, FastAPI
from starlette.routing import Route

from catalog.api.calls import Answer, json_answer
from catalog.api.errors import error_answer
from catalog.errors import CatalogError
from catalog.identity.ports import Identity
from catalog.service.catalog import Catalog
from ingest.door import described
from ingest.door.asgi import Receive, Scope, Send, body_of, headers_of, reply
from ingest.door.asked import Headers, asked
from ingest.door.asking import asking_router
from ingest.door.explain import explain
from ingest.door.ports import Landing, Metrics
from ingest.door.post import PostChanges
from ingest.door.room import Room
from ingest.door.settings import DoorSettings
from ingest.door.sockets.entrance import Entrance
from ingest.journal.journal import Journal

LOOK_S_MAX = 0.2

Foreign = Callable[[Headers], str | None]


class Door:
    """What a server mounts."""

    def __init__(self, room: Room, foreign: Foreign | None) -> None:
        self._room = room
        self.websocket = Entrance(room, foreign)
        self.router: APIRouter = asking_router(room)
        self.routes: list[Route] = [
            _route("/cdc", PostChanges(room, "postChanges")),
            _route("/cdc/explain", Explain(room)),
            _route("/cdc/explain/{namespace}/{table}", Explain(room)),
            _route("/cdc/{namespace}/{table}", PostChanges(room, "postTableChanges")),
            _route("/topics/{topic}", PostChanges(room, "postTopic", kafka=True)),
        ]

    def describe_in(self, app: FastAPI) -> None:
        """Add the ASGI routes to what the application says of itself."""
        plain = app.openapi

        def openapi() -> dict[str, Any]:
            document, ours = plain(), described.document()
            document.setdefault("paths", {}).update(ours["paths"])
            components = document.setdefault("components", {}).setdefault("schemas", {})
            components.update(ours["components"]["schemas"])
            return document

        app.openapi = openapi  # type: ignore[method-assign]

    def measured(self, render: Callable[[], bytes]) -> bytes:
        """The text of /metrics, with what is common to all processes in it."""
        room = self._room
        try:
            fill = room.askers.submit(room.intake.look).result(LOOK_S_MAX)
        except (CatalogError, TimeoutError):
            fill = room.intake.fill  # the database does not answer: what was known last
        with room.measures.common(fill):
            return render()

    def stop(self) -> None:
        """Take no more batches; those under way are finished and answered. From any thread."""
        self._room.stop()

    def close(self) -> None:
        """After the last answer."""
        self._room.close()


class Explain:
    """POST /cdc/explain."""

    def __init__(self, room: Room) -> None:
        self._room = room

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["calve.operation"] = "explainChanges"
        body = await body_of(scope, receive)
        try:
            answer = await self._room.ask(lambda: self._explain(scope, body))
        except CatalogError as error:
            answer = error_answer(error)
        await reply(send, answer)

    def _explain(self, scope: Scope, body: bytes) -> Answer:
        room = self._room
        headers = headers_of(scope)
        request = asked(scope["path_params"], scope["query_string"], headers, room.settings)
        scope["calve.caller"] = room.access.poster(headers, body, request.warehouse).name
        parsed = room.intake.read(body, request.context)
        return json_answer(explain(parsed, request.warehouse, room.landing))


def _route(path: str, endpoint: Any) -> Route:
    return Route(path, endpoint, methods=["POST"])


def door(
    journal: Journal,
    landing: Landing,
    identity: Identity,
    catalog: Catalog,
    settings: DoorSettings,
    metrics: Metrics,
    foreign: Foreign | None = None,
) -> Door:
    """One for each server process, made after a fork: it has threads.

    `foreign` tells why the headers of a WebSocket request are not those of a client of ours; None if they
    are.
    """
    return Door(Room(journal, landing, identity, catalog, settings, metrics), foreign)
