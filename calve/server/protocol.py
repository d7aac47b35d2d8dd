"""What uvicorn's protocol classes lack, and ASGI middleware cannot add.

- A client that connects and sends nothing, or sends the head of a request a byte at a time, holds its
  connection for ever: uvicorn's keep-alive timer starts after the first response, and ends with the first
  byte. Here a head must be complete within the keep-alive time.
- A request that is not HTTP is answered before any ASGI message, as text. Here the response has Iceberg's
  form like all others. If a response has begun already, the connection is only closed. A path with bytes
  that are not ASCII is not HTTP either: zttp lets it pass, and uvicorn fails with a traceback.
- Java's HTTP client offers `Upgrade: h2c` with every request. uvicorn declines the offer and serves the
  request, but logs a warning each time.
"""

from __future__ import annotations

import asyncio
from typing import Any

from prometheus_client import Counter
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.zttp_impl import ZttpProtocol

from catalog.api.errors import error_body

_malformed = Counter("calve_http_malformed_total", "Connections ended because of malformed HTTP.")
_BODY = error_body("The request is not valid HTTP/1.1.", "BadRequestException", 400)
NOT_HTTP = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
)


class Guard:
    """A mixin in front of one of uvicorn's protocol classes, whose attributes it uses."""

    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self: Any, transport: asyncio.Transport) -> None:
        super().connection_made(transport)  # type: ignore[misc]
        self._watch_head()

    def data_received(self: Any, data: bytes) -> None:
        super().data_received(data)  # type: ignore[misc]
        self._watch_head()

    def connection_lost(self: Any, error: Exception | None) -> None:
        super().connection_lost(error)  # type: ignore[misc]
        self._watch_head()

    def handle_events(self: Any, *events: Any) -> None:
        try:
            super().handle_events(*events)  # type: ignore[misc]
        except UnicodeDecodeError:
            self.send_400_response("")

    def _watch_head(self: Any) -> None:
        """Run the timer exactly while the head of a request is awaited or incomplete."""
        is_serving = self.cycle is not None and not self.cycle.response_complete
        if self not in self.connections or is_serving:  # closed, a WebSocket now, or serving a request
            if self._head_timer is not None:
                self._head_timer.cancel()
            self._head_timer = None
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def send_400_response(self: Any, _message: str) -> None:
        _malformed.inc()
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self.transport.write(NOT_HTTP)
        self.transport.close()

    def _unsupported_upgrade_warning(self) -> None:
        """The request is served normally."""


class GuardedZttp(Guard, ZttpProtocol):  # type: ignore[misc]
    pass


class GuardedH11(Guard, H11Protocol):  # type: ignore[misc]
    pass


PROTOCOLS = {"zttp": GuardedZttp, "h11": GuardedH11}
