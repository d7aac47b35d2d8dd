"""The edge of the application: everything that holds for every request, in one ASGI layer.

    app = Edge.of(app, settings)

Before the application: a request id (the client's own if it is sane), the whole body within its limit, as
long as Content-Length says and without its Content-Encoding. After it: headers that every answer has, a
measurement, a log line. Instead of it: 400, 408, 413, 415, 504 and, whatever else goes wrong, a 500 that says
nothing but the request id; the traceback is in the log. All errors have Iceberg's form.

What the application finds in the scope, and what it may put there:

    calve.request_id   in   the id, a text
    calve.headers      in   the headers as a dict
    calve.body         in   the whole body, decoded; `receive` gives it too
    calve.deadline_s   in   when the edge will answer 504, on the clock of time.monotonic()
    calve.operation    out  the name of the operation, for metrics and the log; one of a fixed set
    calve.caller       out  who called, for the log
    calve.reply        in   where the server can: `await reply((status, headers, parts of the body))`

One layer and not six, because each layer costs every request its coroutines, and loadTable is too quick for
that.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Self

from calve.serve import bodies
from calve.serve.bodies import Disconnected, Message, Receive, Refused
from calve.serve.exchange import CLIENT_CLOSED, SAFE_METHODS, Deadlines, Exchange, Scope, Send
from calve.serve.origins import foreign, public_names
from calve.settings import Settings
from calve.telemetry import logs
from calve.telemetry.metrics import Child, metrics
from calve.telemetry.request_log import RequestLog

App = Callable[[Scope, Receive, Send], Awaitable[None]]

SANE_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:\-]{1,64}")
INLINE_EXPAND_BYTES_MAX = 4096  # more compressed input than this is expanded in a thread
LINGER_S = 2.0
LINGER_BYTES_MAX = 256 * 2**20
PROBES = frozenset({b"/health", b"/ready", b"/metrics"})  # logged only when they fail
FRAMING = frozenset({b"content-encoding", b"content-length", b"transfer-encoding"})
STATUS_CLASSES = ("none", "1xx", "2xx", "3xx", "4xx", "5xx")

_log = logging.getLogger(__name__)
_durations = metrics.histogram(
    "calve_http_request_duration_seconds",
    "Time from the head of a request to the end of its answer.",
    ("operation", "status"),
)


class Edge:
    """Wraps the application. One for each process, made after the fork."""

    def __init__(
        self,
        app: App,
        *,
        body_bytes_max: int,
        timeout_s: float,
        request_log: RequestLog,
        log_from_status: int,
        log_reads: bool,
        own_names: frozenset[str] | None = None,
    ) -> None:
        self._app = app
        self._body_bytes_max = body_bytes_max
        self._timeout_s = timeout_s
        self._deadlines = Deadlines(timeout_s)
        self._request_log = request_log
        self._log_from_status = log_from_status
        # A line for every successful read would cost more than many a read, and metrics count them all.
        self._log_reads = log_reads
        self._own_names = own_names  # None: with tokens it does not matter by which name a client comes
        self._id_prefix = secrets.token_hex(4)
        self._id_numbers = itertools.count(1)
        self._children: dict[tuple[str, int], Child] = {}

    @classmethod
    def of(cls, app: App, settings: Settings) -> Self:
        return cls(
            app,
            body_bytes_max=settings.body_bytes_max,
            timeout_s=settings.request_timeout_s,
            request_log=RequestLog(json=settings.log_as_json),
            log_from_status=0 if settings.log_level in {"debug", "info"} else 500,
            log_reads=settings.log_level == "debug",
            own_names=public_names(settings) if settings.auth == "open" else None,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            self._request_log.flush()  # the end of the lifespan is the end of the process
            return
        started_s = time.monotonic()
        headers = dict(scope["headers"])
        exchange = Exchange(scope, send, self._request_id(headers), started_s)
        logs.request_id.set(exchange.id)
        scope["calve.request_id"] = exchange.id
        scope["calve.headers"] = headers
        scope["calve.body"] = b""
        scope["calve.deadline_s"] = started_s + self._timeout_s
        exchange.whole = scope.get("calve.reply")
        if exchange.whole is not None:
            scope["calve.reply"] = exchange.reply
        self._deadlines.add(exchange)
        try:
            if self._own_names is not None and (reason := foreign(headers, self._own_names)) is not None:
                raise Refused(403, "ForbiddenException", reason, unread=True)
            if len(headers) != len(scope["headers"]):
                _require_one_authorization(scope)
            if b"content-length" in headers or b"transfer-encoding" in headers:
                receive = await self._body(exchange, headers, receive)
            await self._app(scope, receive, exchange.send)
            if not exchange.status:  # also set by the deadline
                raise RuntimeError("the application ended without an answer")
        except Refused as refused:
            await self._refuse(exchange, refused, receive)
        except Disconnected:
            exchange.status = exchange.status or CLIENT_CLOSED
        except Exception:
            if exchange.status and not exchange.expired:
                raise  # half an answer is out: the server logs this and cuts the connection
            _log.exception(
                "request failed",
                extra={"method": scope["method"], "path": _path(scope).decode("ascii", "replace")},
            )
            if exchange.expired:
                return  # answered long ago
            message = f"The server failed; its log says why under the request id {exchange.id}."
            await exchange.answer(500, "InternalServerError", message)
        finally:
            self._deadlines.remove(exchange)
            route_name = getattr(scope.get("route"), "operation_id", None)
            operation = scope.get("calve.operation") or route_name or "other"
            caller = scope.get("calve.caller")
            self._account(
                exchange.id, scope["method"], _path(scope), exchange.status, started_s, operation, caller
            )

    def _request_id(self, headers: dict[bytes, bytes]) -> str:
        given = headers.get(b"x-request-id")
        if given is not None and SANE_REQUEST_ID.fullmatch(given):
            return given.decode("ascii")
        return f"{self._id_prefix}-{next(self._id_numbers)}"

    async def _body(self, exchange: Exchange, headers: dict[bytes, bytes], receive: Receive) -> Receive:
        """Read the body into the scope; the result is a `receive` that gives it to the application."""
        scope, bytes_max = exchange.scope, self._body_bytes_max
        exchange.reading = True
        length = bodies.declared_length(headers, bytes_max)
        body = await bodies.read(receive, length, bytes_max) if length != 0 else b""
        coding = headers.get(b"content-encoding")
        if coding is not None and body:
            body = await self._expanded(body, coding.strip().lower())
            plain = (b"content-length", str(len(body)).encode())
            scope["headers"] = [pair for pair in scope["headers"] if pair[0] not in FRAMING] + [plain]
            scope["calve.headers"] = dict(scope["headers"])
        exchange.reading = False
        scope["calve.body"] = body
        return _replay(body, receive)

    async def _expanded(self, body: bytes, coding: bytes) -> bytes:
        if coding == b"identity":
            return body
        if coding not in bodies.CODINGS:
            message = "Content-Encoding must be gzip, zstd or absent."
            raise Refused(415, "UnsupportedMediaTypeException", message)
        if len(body) <= INLINE_EXPAND_BYTES_MAX:
            return bodies.expand(body, coding, self._body_bytes_max)
        return await asyncio.to_thread(bodies.expand, body, coding, self._body_bytes_max)

    async def _refuse(self, exchange: Exchange, refused: Refused, receive: Receive) -> None:
        """Answer, then read on for a moment: a client that still sends would lose the answer to a reset."""
        await exchange.answer(refused.status, refused.error_type, refused.message, linger=refused.unread)
        if not refused.unread:
            return
        left = LINGER_BYTES_MAX
        try:
            async with asyncio.timeout(LINGER_S):
                while left > 0:
                    message = await receive()
                    if message["type"] != "http.request" or not message.get("more_body", False):
                        break
                    left -= len(message.get("body", b""))
        except TimeoutError:
            pass  # long enough
        await exchange.finish()

    def _account(
        self,
        id_: str,
        method: str,
        path: bytes,
        status: int,
        started_s: float,
        operation: str,
        caller: str | None,
    ) -> None:
        """Measure and log."""
        duration_s = time.monotonic() - started_s
        child = self._children.get((operation, status // 100))
        if child is None:
            child = _durations.labels(operation, STATUS_CLASSES[status // 100])
            self._children[operation, status // 100] = child
        child.observe(duration_s)
        is_quiet = path in PROBES or (not self._log_reads and method in SAFE_METHODS)
        if status >= self._log_from_status and (status >= 400 or not is_quiet):
            self._request_log.add(id_, method, path, status, duration_s, operation, caller)


def _require_one_authorization(scope: Scope) -> None:
    """Two of them would let two readers of one request see two callers."""
    if sum(name == b"authorization" for name, _ in scope["headers"]) > 1:
        raise Refused(400, "BadRequestException", "The request has more than one Authorization header.")


def _path(scope: Scope) -> bytes:
    """As the client wrote it, without the query, which may hold what nobody should read."""
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    return path


def _replay(body: bytes, receive: Receive) -> Receive:
    """Gives the body once, then whatever the connection has to say."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
