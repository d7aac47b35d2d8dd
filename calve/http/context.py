"""The outermost layer: request id, access log, duration metric, and a response when all else fails.

The request id is the client's own `X-Request-ID` if it is valid. It is in the response, in every log line
that is written while the request is served, and in a response 500, which contains nothing else: the traceback
is only in the log.

The access log has no query, no header and no body, because those may contain secrets. Successful reads,
probes, the polls of workers and the changes of producers are logged at `debug`, failures of the server at
`error`, everything else at `info`.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import re
import secrets
import time
from collections.abc import Iterator
from logging.handlers import QueueHandler, QueueListener
from queue import SimpleQueue

from prometheus_client import Gauge, Histogram
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from calve.http.responses import send_error
from calve.telemetry import logs
from calve.telemetry.metrics import LATENCY_S

SANE_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:\-]{1,64}")
CLIENT_CLOSED = 499  # never sent, because the client has disconnected; other servers log this number too
PROBES = frozenset({"/health", "/ready", "/metrics"})
# Of workers that look for work, and of producers: some a second, all day.
FREQUENT = frozenset({"leaseJob", "keepJob", "postChanges", "postTableChanges", "postTopic"})
READ_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
HTTP_VERSIONS = ("1.0", "1.1")  # h11 lets any digits through
STATUS_CLASSES = ("none", "1xx", "2xx", "3xx", "4xx", "5xx")
PATH_CHARACTERS_MAX = 1000

_log = logging.getLogger(__name__)
_access = logging.getLogger("calve.access")
_durations = Histogram(
    "calve_http_request_duration_seconds",
    "Time from the head of a request to the end of its answer.",
    ("operation", "status"),
    buckets=LATENCY_S,
)
_in_flight = Gauge("calve_http_requests_in_flight", "Requests being served.", multiprocess_mode="livesum")


class RequestContext:
    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._id_prefix = secrets.token_hex(4)
        self._id_numbers = itertools.count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            with _access_log_in_thread():
                await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        started_s = time.monotonic()
        request_id = scope["calve.request_id"] = self._request_id(scope)
        logs.request_id.set(request_id)
        own_headers = [(b"x-request-id", request_id.encode()), (b"x-content-type-options", b"nosniff")]
        status, is_complete = 0, False

        async def send_with_headers(message: Message) -> None:
            nonlocal status, is_complete
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", ()), *own_headers]}
            else:
                is_complete = not message.get("more_body", False)
            await send(message)

        _in_flight.inc()
        try:
            if scope.get("http_version", "1.1") in HTTP_VERSIONS:
                await self.app(scope, receive, send_with_headers)
            else:
                message = f"HTTP/{scope['http_version']} is not supported. Send HTTP/1.1."
                await send_error(send_with_headers, 505, "HttpVersionNotSupportedException", message)
            if not status:
                raise RuntimeError("the application ended without a response")
        except ClientDisconnect:
            status = status or CLIENT_CLOSED
        except Exception:
            if status and not is_complete:
                raise  # half a response is sent: the server logs this and closes the connection
            _log.exception("request failed", extra={"method": scope["method"], "path": _path(scope)})
            if not status:
                message = f"The server failed; its log says why under the request id {request_id}."
                await send_error(send_with_headers, 500, "InternalServerError", message)
        finally:
            _in_flight.dec()
            _account(scope, status, time.monotonic() - started_s)

    def _request_id(self, scope: Scope) -> str:
        for name, value in scope["headers"]:
            if name == b"x-request-id" and SANE_REQUEST_ID.fullmatch(value):
                return str(value, "ascii")
        return f"{self._id_prefix}-{next(self._id_numbers)}"


def _account(scope: Scope, status: int, duration_s: float) -> None:
    """Measure and log a request."""
    operation = scope.get("calve.operation") or getattr(scope.get("route"), "operation_id", None) or "other"
    _durations.labels(operation, STATUS_CLASSES[status // 100]).observe(duration_s)
    level = _level(scope, operation, status)
    if _access.isEnabledFor(level):
        fields = {
            "request_id": scope["calve.request_id"],
            "method": scope["method"],
            "path": _path(scope),
            "status": status,
            "duration_ms": round(duration_s * 1000, 3),
            "operation": operation,
            "caller": scope.get("calve.caller"),
        }
        _access.log(level, "request", extra=fields)


def _level(scope: Scope, operation: str, status: int) -> int:
    if status >= 500:
        return logging.ERROR
    if status >= 400:
        return logging.INFO
    is_quiet = scope["method"] in READ_METHODS or scope["path"] in PROBES or operation in FREQUENT
    return logging.DEBUG if is_quiet else logging.INFO


def _path(scope: Scope) -> str:
    """The path as the client sent it, without the query."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw[:PATH_CHARACTERS_MAX].decode("ascii", "replace")


@contextlib.contextmanager
def _access_log_in_thread() -> Iterator[None]:
    """While the application runs, a thread formats and writes the lines of the access log."""
    queue: SimpleQueue[logging.LogRecord] = SimpleQueue()
    handler = QueueHandler(queue)
    listener = QueueListener(queue, *logging.getLogger().handlers, respect_handler_level=True)
    _access.addHandler(handler)
    _access.propagate = False
    listener.start()
    try:
        yield
    finally:
        _access.removeHandler(handler)
        _access.propagate = True
        listener.stop()
