"""uvicorn as `calve serve` runs it, but in a thread of this process, so that a test can reach inside."""

from __future__ import annotations

import threading
import time

import uvicorn
from starlette.types import ASGIApp

from calve.server.run import listen, uvicorn_config
from calve.settings import Settings


class ThreadServer:
    """Serves on a free port from `start` to `stop`."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._listener = listen("127.0.0.1", 0)
        self.port = int(self._listener.getsockname()[1])
        self._server = uvicorn.Server(uvicorn_config(settings, lambda: app))
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._listener]}, daemon=True
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._thread.start()
        until_s = time.monotonic() + 60
        while not self._server.started:
            assert self._thread.is_alive(), "the server did not start"
            assert time.monotonic() < until_s, "the server did not start in time"
            time.sleep(0.005)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(60)
        self._listener.close()
        assert not self._thread.is_alive(), "the server did not stop"
