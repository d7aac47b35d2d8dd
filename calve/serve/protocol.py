"""HTTP/1.1 on one connection: uvicorn's fast parser, made safe.

What `Protocol` does beyond uvicorn's `HttpToolsProtocol`:

- **`Upgrade: h2c` keeps its body.** Java's HTTP client offers HTTP/2 with every request. The parser takes any
  offer as the end of HTTP, and the body is lost. Here the offer is declined, as a server may: when the parser
  stops behind such a head, a new parser gets the same head without the offer, and then the rest. The parser
  itself decides where the head ends, so it does not matter how the bytes were cut, and requests without an
  offer cost nothing. WebSocket offers are accepted as before.
- **Limits.** A head (or the trailers of a body, or the framing of chunks) of more than `HEAD_BYTES_MAX` is
  refused with 431. A connection on which no complete head arrives within the keep-alive time is closed,
  however slowly it trickles.
- **Trailers** do not become headers of the request.
- **Refusals** have Iceberg's form, and never take the place of an answer to an earlier, sound request.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from calve.serve.answers import raw_answer
from calve.telemetry.metrics import metrics

HEAD_BYTES_MAX = 64 * 1024
OFFER_HEADERS = frozenset({b"upgrade", b"http2-settings"})

_malformed = metrics.counter("calve_http_malformed_total", "Connections ended because of malformed HTTP.")


class _HeadTooLarge(Exception):
    """Raised through the parser."""


class _Deaf:
    """Stands in for the parser of a connection that will not be listened to any more."""

    def feed_data(self, _data: bytes) -> None:
        """Nothing."""


class Protocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Bytes since the last sign of progress: a head that ended, or a piece of a body.
        self._waiting_bytes = 0
        self._read_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # Not only between requests: a client that connects and says nothing is idle too. The timer ends when
        # a head is complete.
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def data_received(self, data: bytes) -> None:
        self._read_bytes = len(data)
        self._waiting_bytes += self._read_bytes
        try:
            while True:
                try:
                    self.parser.feed_data(data)
                    break
                except httptools.HttpParserUpgrade as stop:
                    if self._should_upgrade():
                        self.handle_websocket_upgrade()
                        return
                    self._decline_offer()
                    data = data[stop.args[0] :]
        except httptools.HttpParserError as error:
            if isinstance(error.__context__, _HeadTooLarge):
                self._refuse_head()
            else:
                self._refuse(400, "BadRequestException", "The request is not valid HTTP/1.1.")
            return
        if self._waiting_bytes > HEAD_BYTES_MAX:
            self._refuse_head()

    # Called by the parser.

    def on_headers_complete(self) -> None:
        # A head that came in one read was never waited for. It can only be too large if that read was.
        if self._waiting_bytes + self._read_bytes > HEAD_BYTES_MAX and self._head_bytes() > HEAD_BYTES_MAX:
            raise _HeadTooLarge
        self._unset_keepalive_if_required()
        if self.parser.should_upgrade() and not self._should_upgrade():
            return  # data_received is about to decline the offer, and this head will come again
        super().on_headers_complete()
        self._waiting_bytes = 0
        if not self.parser.should_upgrade():
            self.headers = []  # what follows are trailers, and nobody reads them

    def on_body(self, body: bytes) -> None:
        self._waiting_bytes = 0
        cycle = self.cycle
        if cycle.response_complete:
            return
        cycle.body += body
        if len(cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        cycle.message_event.set()

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade() or self.cycle.response_complete:
            return
        self.cycle.more_body = False
        self.cycle.message_event.set()

    def _decline_offer(self) -> None:
        """Parse the head that has just ended once more, without the offer in it."""
        method = self.parser.get_method()
        if method == b"CONNECT":  # always means the end of HTTP, offer or not
            raise httptools.HttpParserError("CONNECT")
        version = self.parser.get_http_version().encode()
        head = [method, b" ", self.url, b" HTTP/", version, b"\r\n"]
        for name, value in _without_offer(self.headers):
            head += [name, b": ", value, b"\r\n"]
        head.append(b"\r\n")
        self._waiting_bytes = 0
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        self.parser.feed_data(b"".join(head))

    def _head_bytes(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _refuse_head(self) -> None:
        message = f"The head of the request is larger than {HEAD_BYTES_MAX} bytes."
        self._refuse(431, "RequestHeaderFieldsTooLargeException", message)

    def _refuse(self, status: int, error_type: str, message: str) -> None:
        """End the connection, after the answers to requests that came before the broken bytes."""
        _malformed.labels().add()
        self.parser = _Deaf()  # type: ignore[assignment]
        cycle = cast(
            "RequestResponseCycle | None", self.cycle
        )  # uvicorn declares it as if it always were there
        if (
            cycle is None
            or cycle.response_complete
            or (cycle.more_body and not cycle.response_started and not self.pipeline)
        ):
            # The broken bytes are the next request, or the body of the one that waits for it.
            self.transport.write(raw_answer(status, error_type, message))
            self.transport.close()
        elif cycle.more_body:
            self.transport.close()  # half an answer is out; cutting it is all that is left to say
        else:
            cycle.keep_alive = False  # a sound request is being served: its answer will be the last


def _without_offer(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    kept = []
    for name, value in headers:
        if name in OFFER_HEADERS:
            continue
        if name == b"connection":
            tokens = [token.strip() for token in value.split(b",")]
            value = b", ".join(token for token in tokens if token.lower() not in OFFER_HEADERS)  # noqa: PLW2901
            if not value:
                continue
        kept.append((name, value))
    return kept
