"""One server process: uvicorn around the application, from the first import to the last answer.

`run` returns when the server has been told to stop (SIGTERM, SIGINT, or `stop`) and the requests in flight
are answered, or `shutdown_timeout_s` has passed. What keeps the application from starting is raised.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import uvicorn
from uvicorn.server import HANDLED_SIGNALS

from calve.serve.accept import Acceptor, Loads
from calve.serve.bodies import Message, Receive
from calve.serve.exchange import Scope, Send
from calve.serve.middleware import App
from calve.serve.protocol import Protocol
from calve.settings import Settings
from calve.startup import StartupError
from catalog.shutdown import stopping

COLLECT_AFTER = (50_000, 20, 50)  # objects, then collections of the younger generation

CreateApp = Callable[[Settings], App]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Share:
    """The part of one worker among several on the same socket."""

    number: int
    loads: Loads


class ServerProcess:
    """The server of this process."""

    def __init__(
        self,
        settings: Settings,
        create_app: CreateApp,
        on_ready: Callable[[], None],
        share: Share | None = None,
    ) -> None:
        self._app = _Lifespan(create_app(settings))
        self._server = _Server(_uvicorn_config(settings, self._app), on_ready, share)

    def run(self, listener: socket.socket) -> None:
        """Serve until told to stop."""
        stopping.clear()
        try:
            self._server.run(sockets=[listener])
        except SystemExit:  # uvicorn's way to say that the application did not start
            raise self._app.failure or StartupError("the application did not start.") from None

    def stop(self) -> None:
        """Ask for a graceful stop. From any thread."""
        self._server.should_exit = True


def _uvicorn_config(settings: Settings, app: App) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=Protocol,
        interface="asgi3",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        ws="websockets-sansio",
        # Compression would keep about 44 KB for each connection, and unpack whatever a client sends.
        ws_per_message_deflate=False,
        ws_max_size=2 * settings.message_bytes_max,
        timeout_keep_alive=settings.keep_alive_timeout_s,
        timeout_graceful_shutdown=settings.shutdown_timeout_s,
    )


class _Server(uvicorn.Server):
    """uvicorn's server, which says when it is ready and ends a graceful stop with exit code 0."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None], share: Share | None) -> None:
        super().__init__(config)
        self._on_ready = on_ready
        self._share = share
        self._acceptor: Acceptor | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        # A worker has its own way to accept, so uvicorn gets no socket to accept on.
        await super().startup(sockets if self._share is None else [])
        if self._share is not None and sockets:
            self._acceptor = Acceptor(
                sockets[0], self._protocol, self._connections, self._share.loads, self._share.number
            )
            self.servers.append(self._acceptor)  # type: ignore[arg-type]
        if self.started:
            _settle()
            self._on_ready()

    async def on_tick(self, counter: int) -> bool:
        if self._acceptor is not None:
            self._acceptor.report()  # connections that ended since the last one came
        return await super().on_tick(counter)

    def _connections(self) -> int:
        return len(self.server_state.connections)

    def _protocol(self) -> asyncio.Protocol:
        return Protocol(
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
            _loop=asyncio.get_running_loop(),
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        stopping.set()
        _log.info("stopping", extra={"requests_in_flight": len(self.server_state.tasks)})
        await super().shutdown(sockets)
        _log.info("stopped")

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, but the signal is not raised again at the end: it has been obeyed."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in HANDLED_SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class _Lifespan:
    """Remembers why the application did not start, so that a person reads a sentence and not a traceback."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.at_once = getattr(app, "at_once", None)  # see Edge.at_once
        self.failure: Exception | None = None

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Any:
        if scope["type"] == "lifespan":
            return self._lifespan(scope, receive, send)
        return self._app(scope, receive, send)

    async def _lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def without_details(message: Message) -> None:
            await send({"type": message["type"]})

        try:
            await self._app(scope, receive, without_details)
        except asyncio.CancelledError:
            raise
        except Exception as problem:
            self.failure = problem
            raise


def _settle() -> None:
    """Python's collector looks at objects after every 700 new ones, and a request of 1,000 events makes
    thousands that are all freed without it: it took a sixth of the processor's time, and pauses of 100 ms.
    What is here at the start stays, so it is not looked at again; cycles are rare, so they can wait.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)
