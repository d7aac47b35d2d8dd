"""ASGI middleware for every request.

Outermost first:

    context.py    request id, access log, duration metric, response 500 as the last resort
    origin.py     Host and Origin of an open server; one Authorization header
    (fast)        fast reads, if `fast_paths` is on
    deadline.py   408 or 504 when a request takes too long
    body.py       the whole body, within its limit and without its Content-Encoding
    raw_path.py   the path as the client sent it

The layers pass values in the scope: `calve.request_id` (text), `calve.deadline_s` (clock of
time.monotonic()), and `calve.operation` and `calve.caller`, which the answering code sets for the access log
and the metrics.
"""

from __future__ import annotations

from collections.abc import Callable

from starlette.types import ASGIApp

from calve.http.body import RequestBody
from calve.http.context import RequestContext
from calve.http.deadline import Deadline
from calve.http.origin import OriginCheck, public_names
from calve.http.raw_path import RawPathMiddleware
from calve.settings import Settings


def wrap(app: ASGIApp, settings: Settings, fast: Callable[[ASGIApp], ASGIApp] | None = None) -> ASGIApp:
    """The application inside all layers. `fast` adds the layer for fast reads around the application."""
    app = RequestBody(RawPathMiddleware(app), bytes_max=settings.body_bytes_max)
    app = Deadline(app, timeout_s=settings.request_timeout_s)
    if fast is not None:
        app = fast(app)
    app = OriginCheck(app, names=public_names(settings) if settings.auth == "open" else None)
    return RequestContext(app)
