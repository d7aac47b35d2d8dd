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
- **Reads that wait for nothing** are answered where their head ends (`Edge.at_once`), with one write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from calve.serve.answers import Whole, raw_answer, wire_answer
from calve.serve.cycle import Cycle
from calve.serve.exchange import SAFE_METHODS
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


class _Answered:
    """Stands in for the cycle of a request that was answered at once."""

    response_complete = True
    message_event = asyncio.Event()


_ANSWERED = _Answered()


class Protocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._at_once: Callable[..., Whole | None] | None = getattr(self.app, "at_once", None)
        self._answered_s = 0.0  # when a request was last answered at once, on the clock of the loop
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
        offers_upgrade = self.parser.should_upgrade()
        if offers_upgrade:
            self._unset_keepalive_if_required()
            if self._should_upgrade():
                super().on_headers_complete()
                self._waiting_bytes = 0
            return  # else data_received is about to decline the offer, and this head will come again
        method, url = self.parser.get_method().decode("ascii"), httptools.parse_url(self.url)
        keep_alive = self.parser.get_http_version() != "1.0" and self.parser.should_keep_alive()
        if not (keep_alive and self._is_answered_at_once(method, url)):
            self._unset_keepalive_if_required()
            self._begin(method, url, keep_alive)
        self._waiting_bytes = 0
        self.headers = []  # what follows are trailers, and nobody reads them

    def _begin(self, method: str, url: Any, keep_alive: bool) -> None:
        """The long way: a cycle, and a task for the application; after the request before, if it is open."""
        path = url.path.decode("ascii")
        cycle = Cycle(
            self.scope,
            self.transport,
            self.flow,
            self.logger,
            self.access_logger,
            self.access_log,
            self.server_state.default_headers,
            asyncio.Event(),
            self.expect_100_continue,
            keep_alive,
            self.on_response_complete,
        )
        scope = cast("dict[str, Any]", self.scope)
        scope["http_version"] = self.parser.get_http_version()
        scope["method"] = method
        scope["path"] = unquote(path) if "%" in path else path
        scope["raw_path"] = url.path
        scope["query_string"] = url.query or b""
        scope["calve.reply"] = cycle.reply
        before, self.cycle = cast("RequestResponseCycle | None", self.cycle), cycle
        if before is None or before.response_complete:
            self._start_asgi_task(cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))

    def _is_answered_at_once(self, method: str, url: Any) -> bool:
        """Answer the request whose head has just ended, if it is one of the usual reads."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if (
            self._at_once is None
            or method not in SAFE_METHODS
            or (cycle is not None and not cycle.response_complete)
            or self.flow.write_paused  # the client does not take what it has asked for already
            or self.expect_100_continue
            or self.transport.is_closing()
            or not url.path.isascii()
        ):
            return False
        answer = self._at_once(method, url.path, url.query or b"", self.headers)
        if answer is None:
            return False
        self.transport.writelines(wire_answer(answer, self.server_state.default_headers))
        self.cycle = cast("RequestResponseCycle", _ANSWERED)
        self.server_state.total_requests += 1
        self._answered_s = self.loop.time()  # the keep-alive timer runs on, and looks at this when it ends
        return True

    def timeout_keep_alive_handler(self) -> None:
        left_s = self._answered_s + self.timeout_keep_alive - self.loop.time()
        if left_s <= 0:
            super().timeout_keep_alive_handler()
            return
        self.timeout_keep_alive_task = self.loop.call_later(left_s, self.timeout_keep_alive_handler)

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
